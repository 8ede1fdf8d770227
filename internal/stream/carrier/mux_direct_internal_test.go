// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// gate is a sink whose WriteNow stands still until the test lets it go on.
type gate struct {
	bytes.Buffer
	came chan struct{}
	take chan int // how many bytes
}

func newGate() *gate { return &gate{came: make(chan struct{}), take: make(chan int)} }

func (g *gate) WriteNow(b []byte) (int, error) {
	g.came <- struct{}{}
	n := <-g.take
	if n < 0 {
		return 0, io.ErrClosedPipe
	}
	return g.Write(b[:min(n, len(b))])
}

// waitsDirect waits until a reader of the stream waits for what comes.
func waitsDirect(t testing.TB, st *muxStream) {
	t.Helper()
	runtest.Eventually(t, "the reader waits", func() bool {
		st.mu.Lock()
		defer st.mu.Unlock()
		return st.direct != nil
	})
}

// TestDirect: while a sink is being written CopyTo does not return, whatever
// happens to the stream; what the sink has not taken comes before what follows.
func TestDirect(t *testing.T) {
	for _, c := range []struct {
		what    string
		takes   int
		do      func(st *muxStream, p *peer)
		got     string
		dstErr  error
		err     error
		counted int
	}{
		{"the peer finishes", 3, func(_ *muxStream, p *peer) { p.send(text("de"), "04 000000 00000001") }, "abcde", nil, io.EOF, 5},
		{"the peer resets", 1, func(_ *muxStream, p *peer) { p.send("05 000004 00000001 00000007") }, "abc", nil, &ResetError{7}, 3},
		{"a deadline", 3, func(st *muxStream, _ *peer) { st.SetReadDeadline(time.Unix(1, 0)) }, "abc", nil, os.ErrDeadlineExceeded, 3},
		{"our reset", 3, func(st *muxStream, _ *peer) { st.Reset(1) }, "abc", nil, net.ErrClosed, 3},
		{"our reset, and the rest is given up", 1, func(st *muxStream, _ *peer) { st.Reset(1) }, "a", nil, net.ErrClosed, 1},
		{"our end", 0, func(st *muxStream, _ *peer) { st.Close() }, "", nil, net.ErrClosed, 0},
		{"the sink fails", -1, func(_ *muxStream, p *peer) { p.send(text("de")) }, "", io.ErrClosedPipe, nil, 0},
		{"the session ends", 3, func(st *muxStream, _ *peer) { go st.s.Close() }, "abc", nil, fault.New(fault.CodeSessionLost, ""), 3},
	} {
		t.Run(c.what, func(t *testing.T) {
			s, p := scripted(t, false, Options{})
			p.send(open1)
			st := accept(t, s)
			g, counted := newGate(), 0
			type ends struct{ dst, err error }
			over := make(chan ends, 1)
			go func() {
				dstErr, err := st.CopyTo(g, func(n int) { counted += n })
				over <- ends{dstErr, err}
			}()
			waitsDirect(t, st)
			p.send(text("abc"))
			<-g.came
			c.do(st, p)
			select {
			case e := <-over:
				t.Fatalf("CopyTo returned %v while the sink was being written", e)
			default:
			}
			g.take <- c.takes
			var e ends
			for done := false; !done; {
				select {
				case e = <-over:
					done = true
				case <-g.came:
					g.take <- 1 << 20
				}
			}
			if g.String() != c.got || e.dst != c.dstErr || counted != c.counted {
				t.Errorf("the sink got %q (%d counted), then %v, %v", g.String(), counted, e.dst, e.err)
			}
			isError(t, e.err, c.err)
			st.Close()
			runtest.Eventually(t, "nothing counts as unread", func() bool { return s.unread.Load() == 0 })
		})
	}
}

// TestDirectAcrossAMove: what the sink has not taken comes before what came
// meanwhile on the connection to which the stream has moved.
func TestDirectAcrossAMove(t *testing.T) {
	s, p := scripted(t, false, Options{Connections: 2})
	q := p.attach(s)
	p.send(open1)
	st := accept(t, s)
	g := newGate()
	over := make(chan error, 1)
	go func() {
		_, err := st.CopyTo(g, nil)
		over <- err
	}()
	waitsDirect(t, st)
	p.send(text("abc"))
	<-g.came
	q.send(move(3), text("de"), "04 000000 00000001")
	runtest.Eventually(t, "the stream has moved", func() bool {
		st.mu.Lock()
		defer st.mu.Unlock()
		return st.data.n == 2 && st.finished
	})
	g.take <- 1
	if err := done(t, "copy", over); err != io.EOF || g.String() != "abcde" {
		t.Errorf("the sink got %q, then %v", g.String(), err)
	}
}

// TestDirectKeepsDeadlines: bytes that keep coming do not keep a deadline from being seen.
func TestDirectKeepsDeadlines(t *testing.T) {
	s, p := scripted(t, false, Options{})
	p.send(open1)
	st := accept(t, s)
	g := newGate()
	over := make(chan error, 1)
	go func() {
		_, err := st.CopyTo(g, nil)
		over <- err
	}()
	waitsDirect(t, st)
	p.send(text("a"), text("b"), text("c"))
	<-g.came
	st.SetReadDeadline(time.Unix(1, 0))
	g.take <- 1
	if err := done(t, "copy", over); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("it ended with %v", err)
	}
	p.settle()
	if g.String() != "a" || s.unread.Load() != 2 {
		t.Errorf("the sink got %q, %d wait to be read", g.String(), s.unread.Load())
	}
}
