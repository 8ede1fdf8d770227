// SPDX-License-Identifier: Apache-2.0

package splice_test

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/stream/splice"
)

// timed runs a splice on a clock of its own and tells how long it took.
func timed(t *testing.T, a, b splice.Conn, o splice.Options) (splice.Result, time.Duration) {
	t.Helper()
	begin := time.Now()
	r := splice.New().Both(t.Context(), a, b, o)
	return r, time.Since(begin)
}

// TestLinger: a side that does not end after the other one has closed is given
// limit.Linger from the end of the other direction, not more, however it is copied.
func TestLinger(t *testing.T) {
	for name, as := range means() {
		for order, b := range map[string]func() *side{
			"ends and refuses": func() *side { return (&side{then: io.EOF, refuses: syscall.EPIPE}).ready() },
			"refuses and ends": refuses(0, syscall.EPIPE, 10),
		} {
			t.Run(name+" "+order, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					a := (&side{gives: 10}).ready()
					r, took := timed(t, as(a), as(b()), splice.Options{})
					if r.Code != fault.CodeStreamReset || !errors.Is(r.Err, syscall.EPIPE) || took != limit.Linger {
						t.Errorf("ended with %q, %v, after %v", r.Code, r.Err, took)
					}
				})
			})
		}
	}
}

// slow is a side that gives a byte now and then.
type slow struct {
	*side
	every time.Duration
}

func (s slow) Read(b []byte) (int, error) {
	select {
	case <-time.After(s.every):
	case <-s.gone:
	}
	return s.side.Read(b[:1])
}

// TestIdleBounds: the bound counts from the newest byte, with a quarter for the
// watch to notice; a shorter one holds once a side has finished.
func TestIdleBounds(t *testing.T) {
	const idle, half = 8 * time.Hour, time.Hour
	silent := func() splice.Conn { return (&side{}).ready() }
	finished := func() splice.Conn { return (&side{then: io.EOF}).ready() }
	drip := func(n int, every time.Duration, then error) func() splice.Conn {
		return func() splice.Conn { return slow{(&side{gives: n, then: then}).ready(), every} }
	}
	for _, c := range []struct {
		name        string
		a, b        func() splice.Conn
		code        fault.Code
		least, most time.Duration
	}{
		{"nothing ever", silent, silent, fault.CodeStreamIdle, idle, idle + half/2},
		{"one side has finished", silent, finished, fault.CodeStreamIdle, half, half + half/2},
		{"bytes now and then", drip(10, idle-time.Minute, nil), silent, fault.CodeStreamIdle, 10*(idle-time.Minute) + idle, 11*idle + half/2},
		{"bytes now and then after the other's end", finished, drip(10, half-time.Minute, io.EOF), "", 10 * (half - time.Minute), 11 * half},
		{"too seldom after the other's end", finished, drip(10, 2*half, io.EOF), fault.CodeStreamIdle, half, half + half/2},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, took := timed(t, c.a(), c.b(), splice.Options{Idle: idle, HalfIdle: half})
				if r.Code != c.code || took < c.least || took > c.most {
					t.Errorf("ended with %q, %v, after %v; want %q within %v to %v", r.Code, r.Err, took, c.code, c.least, c.most)
				}
			})
		})
	}
}

// TestBusyIsNotIdle: as long as bytes move in one direction, the limit does not count.
func TestBusyIsNotIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const idle = time.Second
		mux := end{make: func(t testing.TB) (splice.Conn, peer, func()) {
			near, far := net.Pipe()
			agent, hub := sessionsOver(t, near, far)
			return streamOf(t, agent, hub)
		}}
		s := start(t, mux, mux, splice.Options{Idle: idle})
		one := make([]byte, 1)
		for range 20 {
			if _, err := s.a.Write(one); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(s.b, one); err != nil {
				t.Fatal(err)
			}
			time.Sleep(idle - time.Millisecond)
		}
		s.a.CloseWrite()
		s.b.CloseWrite()
		if r := s.done(t); r.Code != "" {
			t.Errorf("ended with %q, %v", r.Code, r.Err)
		}
	})
}

// TestNothingAfterTheEnd: neither a timer nor the context's end touches the sides
// of a splice that is over.
func TestNothingAfterTheEnd(t *testing.T) {
	for name, c := range map[string]struct {
		b    func() *side
		code fault.Code
	}{
		"in order":    {func() *side { return (&side{then: io.EOF}).ready() }, ""},
		"one refuses": {refuses(0, syscall.EPIPE, 10), fault.CodeStreamReset},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				a, b := (&side{gives: 10, then: io.EOF}).ready(), c.b()
				r := splice.New().Both(ctx, a, b, splice.Options{Idle: time.Minute})
				cancel()
				time.Sleep(time.Hour) // of the test's own clock
				synctest.Wait()
				if r.Code != c.code || len(a.reset)+len(b.reset) > 0 {
					t.Errorf("%q, reset with %v and %v", r.Code, a.reset, b.reset)
				}
			})
		})
	}
}
