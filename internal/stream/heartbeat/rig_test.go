// SPDX-License-Identifier: Apache-2.0

package heartbeat_test

import (
	"context"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/stream/heartbeat"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
	pb "github.com/tombolo-io/tombolo/proto"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// end is one end of a link that has a delay and can be cut: then bytes vanish.
type end struct {
	net.Conn
	delay time.Duration
	cut   atomic.Bool
	last  atomic.Int64
	pings atomic.Int64 // frames with a ping that this end has written
}

func (e *end) Read(b []byte) (int, error) {
	n, err := e.Conn.Read(b)
	if n > 0 {
		e.last.Store(time.Now().UnixNano())
	}
	return n, err
}

func (e *end) Reset(uint32) error { return e.Close() }

func (e *end) Write(b []byte) (int, error) {
	var f pb.Control
	if wire.Read(strings.NewReader(string(b)), limit.ControlFrame, &f) == nil && f.GetPing() != nil {
		e.pings.Add(1)
	}
	if e.cut.Load() {
		return len(b), nil
	}
	time.Sleep(e.delay) // the wire's own time, within the bubble
	return e.Conn.Write(b)
}

func link(delay time.Duration) (a, b *end) {
	x, y := net.Pipe()
	a, b = &end{Conn: x, delay: delay}, &end{Conn: y, delay: delay}
	a.last.Store(time.Now().UnixNano())
	b.last.Store(time.Now().UnixNano())
	return a, b
}

// beat is a Beat over one end, with what it reported.
type beat struct {
	*heartbeat.Beat
	end *end

	mu     sync.Mutex
	frames []*pb.Control
	rtts   []time.Duration
	result chan error
}

func run(ctx context.Context, e *end) *beat {
	return runStalled(ctx, e, nil)
}

// runStalled calls stall, if it is not nil, in each look, between the reading of what
// is known and of the clock.
func runStalled(ctx context.Context, e *end, stall func()) *beat {
	b := &beat{end: e, result: make(chan error, 1)}
	b.Beat = heartbeat.New(heartbeat.Options{
		Stream: e, End: func() { e.Close() },
		LastReceived: func() time.Time {
			at := time.Unix(0, e.last.Load())
			if stall != nil {
				stall()
			}
			return at
		},
		OnFrame: func(f *pb.Control) { b.mu.Lock(); defer b.mu.Unlock(); b.frames = append(b.frames, f) },
		OnRTT:   func(d time.Duration) { b.mu.Lock(); defer b.mu.Unlock(); b.rtts = append(b.rtts, d) },
	})
	go func() { b.result <- b.Run(ctx) }()
	return b
}

// bubble runs body over two beats and ends them.
func bubble(t *testing.T, delay time.Duration, body func(t *testing.T, a, b *beat)) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		x, y := link(delay)
		a, b := run(ctx, x), run(ctx, y)
		body(t, a, b)
		cancel()
		synctest.Wait()
	})
}
