// SPDX-License-Identifier: Apache-2.0

package grpcwire_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/stream/konnectivity/grpcwire"
)

// TestAStatusThatWaits keeps nothing that comes meanwhile, and its stream is not over before it is written.
func TestAStatusThatWaits(t *testing.T) {
	w := listening(t)
	var returned, over atomic.Int64
	s := newServer(w)
	s.Handle = func(s *grpcwire.Stream) error {
		s.Finally(func() { over.Add(1) })
		s.Last([]byte("no"))
		returned.Add(1)
		return nil
	}
	w.serve(s)
	p := w.peer(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	id := p.open()
	runtest.Eventually(t, "the handler returns", func() bool { return returned.Load() == 1 })
	for range 3 {
		p.WriteData(id, false, make([]byte, 10<<10))
	}
	p.WritePing(false, [8]byte{1})
	p.until(func(f http2.Frame) bool {
		return f.Header().Type == http2.FramePing && f.Header().Flags.Has(http2.FlagPingAck)
	})
	runtest.Eventually(t, "what came is kept by nobody", func() bool { return w.pool.out.Load() == 0 })
	if over.Load() != 0 {
		t.Error("it is over before its status is written")
	}
	p.WriteWindowUpdate(id, 100)
	p.until(func(f http2.Frame) bool { h, ok := f.(*http2.HeadersFrame); return ok && h.StreamEnded() })
	runtest.Eventually(t, "it is over", func() bool { return over.Load() == 1 })
}

// TestSmallWindowsForMany end their connection: each wakes all streams that wait.
func TestSmallWindowsForMany(t *testing.T) {
	const streams = 400
	w := listening(t)
	s := newServer(w)
	s.Streams = streams
	w.serve(s)
	p := w.peer()
	message := make([]byte, 1000)
	copy(message, []byte{0, 0, 0, 995 >> 8, 995 & 0xff})
	for range streams { // what is echoed is more than the window of the connection
		p.WriteData(p.open(), false, message)
	}
	n := 0
	p.until(func(f http2.Frame) bool {
		if d, ok := f.(*http2.DataFrame); ok {
			n += len(d.Data())
		}
		return n == 65_535
	})
	var writing sync.WaitGroup
	writing.Go(func() {
		for p.WriteWindowUpdate(0, 1<<10-1) == nil {
		}
	})
	p.goesAway(http2.ErrCodeEnhanceYourCalm)
	p.Conn.Close()
	writing.Wait()
	w.peer().lives()
}

// TestManyDirectionsThatEnd at one time are no attack: a caller may let go of all its streams.
func TestManyDirectionsThatEnd(t *testing.T) {
	const streams = 1500
	w := listening(t)
	s := newServer(w)
	s.Streams = streams + 1
	w.serve(s)
	p := w.peer()
	var ids []uint32
	for range streams {
		ids = append(ids, p.open())
	}
	var writing sync.WaitGroup
	writing.Go(func() {
		for _, id := range ids {
			p.WriteData(id, true, nil)
		}
	})
	n := 0
	p.until(func(f http2.Frame) bool {
		if h, ok := f.(*http2.HeadersFrame); ok && h.StreamEnded() {
			n++
		}
		return n == streams || f.Header().Type == http2.FrameGoAway
	})
	if writing.Wait(); n != streams {
		t.Fatalf("%d of %d streams have ended when the connection does", n, streams)
	}
	p.lives()
}
