// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/telemetry"
)

// Exporter sends records to a collector.
type Exporter interface {
	// Export sends whole lines, as Append writes them. After an error all of them
	// are sent again; rejected is the number of records that the collector refused,
	// which are not.
	Export(ctx context.Context, lines []byte) (rejected int64, err error)
	// Where names the collector, for messages.
	Where() string
	// Close releases its connections.
	Close()
}

// exporting is a sink that sends.
type exporting struct {
	Exporter
	ctx   context.Context // of all requests; set before the first
	abort context.CancelFunc
	lose  func(n int64)
}

// newExporting makes the Writer for a collector. It queues and retries like the
// one for a file.
func newExporting(cfg Config, o Options, m *telemetry.Audit) *Writer {
	w := newLane(cfg, o, m)
	w.where, w.down = "the collector "+o.Export.Where(), lostAway
	s := &exporting{Exporter: o.Export, lose: func(n int64) { w.lose(lostRejected, n) }}
	w.sink = s
	return w
}

func (s *exporting) Write(b []byte) (int, error) {
	rejected, err := s.Export(s.ctx, b)
	if err != nil {
		return 0, err
	}
	s.lose(rejected)
	return len(b), nil
}

func (s *exporting) Close() error {
	s.abort()
	s.Exporter.Close()
	return nil
}

func (*exporting) Due() time.Time       { return time.Time{} }
func (*exporting) Rotate()              {}
func (*exporting) Tidy(context.Context) {}
