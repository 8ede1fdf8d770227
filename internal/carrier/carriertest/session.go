// SPDX-License-Identifier: Apache-2.0

package carriertest

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/carrier"
)

func sessionClose(t *testing.T, p Pair) {
	near, far := link(t, p.A, p.B)
	ctx := within(t)
	o := own(t)
	for name, s := range map[string]carrier.Session{"A": p.A, "B": p.B} {
		o.do(name+" accepts", func() error {
			if _, err := s.AcceptStream(ctx); err == nil {
				return errors.New("a stream out of a closed session")
			}
			return ctx.Err()
		})
	}
	for _, s := range []carrier.Stream{near, far} {
		o.do("read", func() error { return failsNotEOF(s.Read(make([]byte, 1))) })
		o.do("write", func() error {
			for block := make([]byte, 1<<20); ; {
				if _, err := s.Write(block); err != nil {
					return failsNotEOF(0, err)
				}
			}
		})
	}
	p.A.Close()
	o.wait()
	ended(t, p, near, far)
	p.A.Close() // again is harmless
	if err := errors.Join(near.Close(), far.Close()); err != nil && !errors.Is(err, io.EOF) {
		t.Logf("closing dead streams: %v", err)
	}
}

// noFalseEOF: a session that its peer ends in order cuts its streams short. That
// must never look like the end of their data.
func noFalseEOF(t *testing.T, p Pair) {
	near, far := link(t, p.A, p.B)
	if _, err := far.Write([]byte("half of a")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(near, make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	p.B.Close()
	ended(t, p, near, far)
}

func transportDeath(t *testing.T, p Pair) {
	near, far := link(t, p.A, p.B)
	o := own(t)
	o.do("read", func() error { return failsNotEOF(near.Read(make([]byte, 1))) })
	o.do("read", func() error { return failsNotEOF(far.Read(make([]byte, 1))) })
	p.Cut()
	o.wait()
	ended(t, p, near, far)
}

// stalled: streams that nobody reads, filled to the brim in both directions,
// change nothing for another stream nor for a new one.
func stalled(t *testing.T, p Pair) {
	for _, n := range []int{1, 8, 64} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			early, earlyFar := link(t, p.A, p.B)
			defer early.Close()
			defer earlyFar.Close()
			writers := own(t)
			var idle []carrier.Stream
			full := make(chan struct{})
			for range n {
				near, far := link(t, p.A, p.B)
				idle = append(idle, near, far)
				for _, s := range []carrier.Stream{near, far} {
					s.SetDeadline(time.Time{})
					writers.do("fill", func() error { fill(s, full); return nil })
				}
			}
			for range idle {
				<-full
			}
			moves(t, early, earlyFar)
			for range 3 {
				near, far := link(t, p.B, p.A)
				moves(t, near, far)
				near.Close()
				far.Close()
			}
			for _, s := range idle {
				s.Reset(1)
			}
			writers.wait()
		})
	}
}

// fill writes until the stream takes no more, says so, and stays in that write
// until the stream is reset.
func fill(s carrier.Stream, full chan<- struct{}) {
	block := make([]byte, 64<<10)
	for {
		s.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
		if _, err := s.Write(block); err != nil {
			break
		}
	}
	s.SetWriteDeadline(time.Time{})
	full <- struct{}{}
	for {
		if _, err := s.Write(block); err != nil {
			return
		}
	}
}

// moves carries a mebibyte each way.
func moves(t *testing.T, near, far carrier.Stream) {
	t.Helper()
	for _, d := range []struct{ w, r carrier.Stream }{{near, far}, {far, near}} {
		o := own(t)
		o.do("write beside stalled streams", func() error { _, err := d.w.Write(make([]byte, 1<<20)); return err })
		if _, err := io.ReadFull(d.r, make([]byte, 1<<20)); err != nil {
			t.Errorf("read beside stalled streams: %v", err)
		}
		o.wait()
	}
}

// churn opens and ends streams in every way and leaves nothing behind.
func churn(t *testing.T, p Pair) {
	const streams = 10_000
	ctx := within(t)
	before := runtime.NumGoroutine()
	o := own(t)
	o.do("accept", func() error {
		for range streams {
			s, err := p.B.AcceptStream(ctx)
			if err != nil {
				return err
			}
			switch s.SetDeadline(time.Now().Add(bound)); one(s) {
			case 'c':
				err = s.Close()
			case 'r':
				err = s.Reset(9)
			case 'h':
				s.Write([]byte("end"))
				err = s.CloseWrite()
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	for i := range streams {
		s, err := p.A.OpenStream(ctx, nil)
		if err != nil {
			t.Fatalf("stream %d: %v", i, err)
		}
		s.SetDeadline(time.Now().Add(bound))
		if _, err := s.Write([]byte{"crh"[i%3]}); err != nil {
			t.Fatalf("stream %d: %v", i, err)
		}
		got, err := io.ReadAll(s)
		switch i % 3 {
		case 0:
			if err != nil || len(got) != 0 {
				t.Fatalf("stream %d: %q, %v", i, got, err)
			}
		case 1:
			isReset(t, "read", err, 9)
		case 2:
			if err != nil || string(got) != "end" {
				t.Fatalf("stream %d: %q, %v", i, got, err)
			}
		}
		s.Close()
	}
	o.wait()
	for runtime.NumGoroutine() > before && ctx.Err() == nil {
		runtime.Gosched()
	}
	if now := runtime.NumGoroutine(); now > before {
		t.Fatalf("%d goroutines before, %d after", before, now)
	}
}

func one(s io.Reader) byte {
	var b [1]byte
	s.Read(b[:])
	return b[0]
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
			o.do("echo", func() error {
				defer s.Close()
				s.SetDeadline(time.Now().Add(bound))
				if _, err := io.Copy(s, s); err != nil {
					return err
				}
				return s.CloseWrite()
			})
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
}

func traffic(t *testing.T, p Pair) {
	const size = 300_000
	near, far := link(t, p.A, p.B)
	defer near.Close()
	a, b := p.A.Traffic(), p.B.Traffic()
	if a.LastReceived.IsZero() {
		t.Error("LastReceived is zero; it should be the session's begin")
	}
	sent := time.Now()
	o := own(t)
	o.do("write", func() error { _, err := near.Write(make([]byte, size)); return err })
	if _, err := io.ReadFull(far, make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	o.wait()
	// The peer may have read the last bytes before our own write returned.
	for ctx := within(t); p.A.Traffic().Sent-a.Sent < size; runtime.Gosched() {
		if ctx.Err() != nil {
			t.Fatalf("A sent %d bytes, want at least %d", p.A.Traffic().Sent-a.Sent, size)
		}
	}
	got := p.B.Traffic()
	if moved := got.Received - b.Received; moved < size {
		t.Errorf("B received %d bytes, want at least %d", moved, size)
	}
	if got.LastReceived.Before(sent) || got.LastReceived.After(time.Now()) {
		t.Errorf("B last received at %v, sent at %v", got.LastReceived, sent)
	}
	if p.A.RemoteAddr() == nil || p.B.RemoteAddr() == nil {
		t.Error("no address of the peer")
	}
}
