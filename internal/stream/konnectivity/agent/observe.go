// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"io"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/status"

	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/stream/konnectivity"
)

func newMetrics(reg prometheus.Registerer) *telemetry.KonnectivityAgent {
	segments, kinds := konnectivity.Segments(), konnectivity.Kinds()
	m := telemetry.NewKonnectivityAgent(reg, segments[:], kinds[:])
	for _, reason := range []string{konnectivity.TargetTimeout, konnectivity.TargetUnknown} {
		m.DialFailures.WithLabelValues(reason)
	}
	return m
}

// observer counts for an agent.
type observer struct{ *Agent }

func (o observer) Stream(string, int) {}

func (o observer) Packet(segment konnectivity.Segment, kind konnectivity.PacketType) {
	o.metrics.Packets.WithLabelValues(konnectivity.Segments()[segment], kind.String()).Inc()
}

func (o observer) Failed(segment konnectivity.Segment, kind konnectivity.PacketType, err error) {
	if err == io.EOF {
		return // the server has ended the stream
	}
	direction := "from_server"
	if segment == konnectivity.FromAgent {
		direction = "to_server"
	}
	o.metrics.ServerFailures.WithLabelValues(direction).Inc()
	o.metrics.Errors.WithLabelValues(konnectivity.Segments()[segment], status.Code(err).String(), kind.String()).Inc()
}

func (o observer) Wrote(time.Duration) {} // an agent has no callers

func (o observer) Waits(konnectivity.Segment, int) {}

func (o observer) Dialled(took time.Duration) { o.metrics.Dials.Observe(took.Seconds()) }

func (o observer) DialFailed(reason string) { o.metrics.DialFailures.WithLabelValues(reason).Inc() }

func (o observer) Connections(change int) { o.metrics.Connections.Add(float64(change)) }
