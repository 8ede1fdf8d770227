// SPDX-License-Identifier: Apache-2.0

package carriertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/stream/carrier"
)

func loadCases() []Case {
	return []Case{
		{Name: "flow control", body: flowControl},
		{Name: "stalled streams", body: stalled, counts: true},
		{Name: "opens and closes", body: churn, counts: true},
		{Name: "1,000 at once", body: many},
		{Name: "idle streams", body: idle, counts: true},
	}
}

// flowControl: what a stream takes while nobody reads it is bounded, and a write
// that waits for its reader goes on when it reads.
func flowControl(t *testing.T, p Pair) {
	for _, d := range p.sides() {
		t.Run(d.name, func(t *testing.T) {
			near, far := link(t, d.from, d.to)
			halted(t, p, near, far, d.to)
			halted(t, p, far, near, d.from)
			near.Close()
			far.Close()
		})
		emptied(t, p)
	}
}

// halted fills a direction, whose reader begins only then at the session at.
func halted(t *testing.T, p Pair, w, r carrier.Stream, at carrier.Session) {
	t.Helper()
	const of, rest = content(9), 2 * beyond
	taken := cram(t, w, of, 0)
	if _, lacks := p.Lacks[UnreadKnown]; !lacks {
		if n := int64(at.Info().Unread); n > taken {
			t.Errorf("%d bytes are unread of %d that were written", n, taken)
		}
	}
	w.SetWriteDeadline(time.Now().Add(bound))
	var accepted atomic.Int64
	accepted.Store(taken)
	wrote := make(chan error, 1)
	go func() {
		src := &source{of: of, offset: taken, size: taken + rest, rng: seeded(9)}
		srcErr, err := w.CopyFrom(src, func(n int) { accepted.Add(int64(n)) })
		if srcErr != io.EOF {
			err = errors.Join(err, srcErr)
		}
		wrote <- errors.Join(err, w.CloseWrite())
	}()
	// The copy may take what cram was too hasty for, and then waits.
	begun := time.NewTimer(20 * time.Millisecond)
	select {
	case err := <-wrote:
		t.Fatalf("%d bytes were taken though nobody reads: %v", accepted.Load(), err)
	case <-begun.C:
	}
	if n := accepted.Load(); n > beyond {
		t.Errorf("%d bytes were taken though nobody reads", n)
	}
	if err := wantAll(r, of, taken+rest, seeded(10)); err != nil {
		r.Reset(1) // wakes the writer
		t.Error(err)
	}
	if err := <-wrote; err != nil {
		t.Errorf("the writer did not go on: %v", err)
	}
}

// stalled: streams that nobody reads, filled to the brim, change nothing for
// another stream nor for a new one, in either direction.
func stalled(t *testing.T, p Pair) {
	for _, c := range []struct {
		streams      int
		aFull, bFull bool // what A writes, what B writes
	}{
		{1, true, false}, {1, false, true}, {8, true, true}, {64, true, true},
		{1_000, true, false}, {1_000, false, true}, // at most 24 unless in full
	} {
		size := int64(1 << 20)
		if !p.full {
			c.streams, size = min(c.streams, 24), 400<<10 // still more than a first window
		}
		t.Run(fmt.Sprintf("%d, A's %v, B's %v", c.streams, c.aFull, c.bFull), func(t *testing.T) {
			early, earlyFar := link(t, p.A, p.B)
			defer early.Close()
			defer earlyFar.Close()
			writers := own(t)
			var stuck []carrier.Stream
			full := make(chan error)
			filled := 0
			for i := range c.streams {
				a, b := opposite(t, p, i%2 == 0)
				stuck = append(stuck, a, b)
				for s, fills := range map[carrier.Stream]bool{a: c.aFull, b: c.bFull} {
					if fills {
						filled++
						writers.do("fill", func() error { fill(s, full); return nil })
					}
				}
			}
			for range filled {
				if err := <-full; !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("a stream that nobody reads: %v", err)
				}
			}
			if err := moveBytes(early, earlyFar, size); err != nil {
				t.Error(err)
			}
			for _, d := range p.sides() {
				near, far := link(t, d.from, d.to)
				if err := moveBytes(near, far, size); err != nil {
					t.Error(err)
				}
				near.Close()
				far.Close()
			}
			for _, s := range stuck {
				s.Reset(1)
			}
			writers.wait()
		})
		emptied(t, p)
	}
}

// opposite opens a stream at either side, without deadlines.
func opposite(t *testing.T, p Pair, aOpens bool) (a, b carrier.Stream) {
	t.Helper()
	if aOpens {
		a, b = link(t, p.A, p.B)
	} else {
		b, a = link(t, p.B, p.A)
	}
	a.SetDeadline(time.Time{})
	b.SetDeadline(time.Time{})
	return a, b
}

// fill writes until the stream takes no byte for a while, says so, and stays in
// that write until the stream is reset.
func fill(s carrier.Stream, full chan<- error) {
	block := make([]byte, 64<<10)
	for {
		s.SetWriteDeadline(time.Now().Add(20 * time.Millisecond))
		if n, err := s.Write(block); n == 0 {
			full <- err
			break
		}
	}
	s.SetWriteDeadline(time.Time{})
	writeUntilFails(s)
}

// churn opens and ends streams in every way and leaves nothing behind.
func churn(t *testing.T, p Pair) {
	streams := p.number(100_000, 2_400)
	ctx, cancel := context.WithCancel(within(t))
	defer cancel()
	servers := own(t)
	servers.do("accept", func() error {
		for {
			s, err := p.B.AcceptStream(ctx)
			if err != nil {
				return unless(ctx, err)
			}
			if err := endAsAsked(s); err != nil {
				return err
			}
		}
	})
	const clients = 8
	round := func(n int) {
		var wg sync.WaitGroup
		for range clients {
			wg.Go(func() {
				for i := range n / clients {
					if err := openAndEnd(ctx, p.A, "crh"[i%3]); err != nil {
						t.Errorf("stream %d: %v", i, err)
						cancel()
						return
					}
				}
			})
		}
		wg.Wait()
		emptied(t, p)
	}
	round(streams / 10) // pools and maps have their size now
	goroutines, bytes := runtime.NumGoroutine(), heap()
	round(streams)
	noMoreGoroutines(t, goroutines)
	if now := heap(); now > bytes+2<<20 {
		t.Errorf("the heap had %d KB and has %d KB after %d streams", bytes>>10, now>>10, streams)
	}
	cancel()
	servers.wait()
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what finalizers and pools let go
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// endAsAsked reads one byte, which says how to end.
func endAsAsked(s carrier.Stream) error {
	var how [1]byte
	s.SetDeadline(time.Now().Add(bound))
	if _, err := io.ReadFull(s, how[:]); err != nil {
		return err
	}
	switch how[0] {
	case 'r':
		return s.Reset(9)
	case 'h':
		if _, err := s.Write([]byte("end")); err != nil {
			return err
		}
		if err := s.CloseWrite(); err != nil {
			return err
		}
	}
	return s.Close()
}

func openAndEnd(ctx context.Context, from carrier.Session, how byte) error {
	s, err := from.OpenStream(ctx, []byte{how})
	if err != nil {
		return err
	}
	defer s.Close()
	s.SetDeadline(time.Now().Add(bound))
	got, err := io.ReadAll(s)
	var reset *carrier.ResetError
	switch {
	case how == 'c' && err == nil && len(got) == 0:
	case how == 'r' && errors.As(err, &reset) && reset.Code == 9:
	case how == 'h' && err == nil && string(got) == "end":
	default:
		return fmt.Errorf("asked for end %q, got %q and %v", how, got, err)
	}
	return nil
}

func many(t *testing.T, p Pair) {
	const streams = 1_000
	ctx := within(t)
	o := own(t)
	o.do("accept", func() error {
		for range streams {
			s, err := p.B.AcceptStream(ctx)
			if err != nil {
				return err
			}
			o.do("echo", func() error { return echo(s) })
		}
		return nil
	})
	open := make([]carrier.Stream, streams)
	for i := range open {
		s, err := p.A.OpenStream(ctx, nil)
		if err != nil {
			t.Fatalf("stream %d: %v", i, err)
		}
		s.SetDeadline(time.Now().Add(bound))
		open[i] = s
	}
	for i, s := range open {
		if _, err := fmt.Fprintf(s, "stream %d", i); err != nil {
			t.Fatal(err)
		}
	}
	for i, s := range open {
		s.CloseWrite()
		if got, err := io.ReadAll(s); err != nil || string(got) != fmt.Sprintf("stream %d", i) {
			t.Fatalf("stream %d: %q, %v", i, got, err)
		}
		s.Close()
	}
	o.wait()
	emptied(t, p)
}

// idle: streams that have carried bytes and are silent cost the carrier no goroutine.
func idle(t *testing.T, p Pair) {
	first, firstFar := link(t, p.A, p.B)
	if err := moveBytes(first, firstFar, 1000); err != nil {
		t.Fatal(err)
	}
	before := runtime.NumGoroutine()
	var open []carrier.Stream
	for i := range p.number(1_000, 300) {
		a, b := opposite(t, p, i%2 == 0)
		if err := moveBytes(a, b, 100); err != nil {
			t.Fatal(err)
		}
		open = append(open, a, b)
	}
	noMoreGoroutines(t, before)
	for _, s := range append(open, first, firstFar) {
		s.Close()
	}
	emptied(t, p)
}
