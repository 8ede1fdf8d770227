// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"io"
	"net"
	"slices"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// TestLoss of a connection: which streams end, which go on, what is said and
// repeated to the peer.
func TestLoss(t *testing.T) {
	s, p := scripted(t, false, Options{Connections: 3})
	q := p.attach(s)
	for _, id := range []int{1, 5, 7, 9} {
		p.send(opens(int(id), firstWindow))
	}
	p.send(text("ab"))
	p.settle()
	q.send(open3)
	q.settle()
	streams := map[uint32]*muxStream{}
	for range 5 {
		st := accept(t, s)
		streams[st.id] = st
	}
	q.send(numbered(9, 5, 3)) // has bytes under way on A
	q.quiet()
	q.send(numbered(9, 7, 0)) // has moved, but our direction is on A
	q.send(numbered(9, 9, 0)) // has moved
	q.quiet()
	p.want(numbered(10, 7, 1), numbered(10, 9, 1))
	moved := streams[9]
	travel(moved, s.lanes[1]) // and ours moves too
	moved.send()
	q.want(numbered(9, 9, 0))
	q.send(numbered(10, 9, 1), data(9, 65536), data(9, 65536))
	q.quiet()
	if n, err := moved.Read(make([]byte, 131072)); n != 131072 {
		t.Fatal(n, err)
	}
	q.want(numbered(3, 9, 393216))
	ours := open(t, s, "x") // on A, of course
	p.want(open2, "01 000001 00000002 78")
	p.quiet()

	p.conn.Close()
	var said []string
	for range 6 {
		said = append(said, digits(q.next()))
	}
	slices.Sort(said)
	var want []string
	for _, frame := range []string{
		numbered(3, 9, 393216), numbered(10, 9, 1), // in case they were under way on A
		"05 000004 00000001 00000008", "05 000004 00000002 00000008", "05 000004 00000005 00000008", "05 000004 00000007 00000008",
	} {
		want = append(want, digits(frame))
	}
	if slices.Sort(want); !slices.Equal(said, want) {
		t.Errorf("the session says\n%q, want\n%q", said, want)
	}
	gone := fault.New(fault.CodeSessionLost, "")
	reads(t, streams[1], "ab", gone)
	reads(t, streams[5], "", gone)
	reads(t, streams[7], "", gone)
	reads(t, ours, "", gone)
	_, err := ours.Write([]byte("y"))
	isError(t, err, gone)

	q.quiet()
	q.send(data(3, 1), "04 000000 00000003", data(9, 1), "04 000000 00000009")
	reads(t, streams[3], "x", io.EOF)
	reads(t, streams[9], "x", io.EOF)
	if i := s.Info(); i.Connections != 1 || i.Streams != 2 {
		t.Errorf("%+v", i)
	}
	open(t, s, "")
	q.want("02 000008 00000004 00040000 00040000")
	q.conn.Close()
	done(t, "the session ends with its last connection", s.Done())
	if _, err := s.OpenStream(t.Context(), nil); !fault.Has(err, fault.CodeSessionLost) {
		t.Errorf("open: %v", err)
	}
}

// TestLossOfEnded: a stream that has ended here has a MOVE under way. When that
// is lost, the peer is told, as often as what told it is lost too.
func TestLossOfEnded(t *testing.T) {
	s, p := scripted(t, false, Options{Connections: 4})
	q, r, u := p.attach(s), p.attach(s), p.attach(s)
	p.send(open1, open3)
	p.settle()
	for range 2 {
		st := accept(t, s)
		travel(st, s.lanes[2])
		if st.id == 3 {
			p.send("04 000000 00000003")
			p.settle()
			r.settle()
		}
		st.Close()
	}
	frames := append(p.settle(), r.settle()...)
	if n := s.Info().Streams; n != 0 {
		t.Fatalf("%d streams live, the session said %q", n, frames)
	}
	u.conn.Close() // had nothing to do with them
	runtest.Eventually(t, "the loss is known", func() bool { return s.Info().Connections == 3 })
	p.quiet()
	r.conn.Close()
	p.want("05 000004 00000001 00000008", "05 000004 00000003 00000008")
	p.conn.Close()
	q.want("05 000004 00000001 00000008", "05 000004 00000003 00000008")
	s.mu.Lock()
	for i := range s.under {
		s.under[i].at -= limit.DeadIdle + 1 // they are history by now
	}
	s.rememberLocked(99, nil)
	if len(s.under) != 1 {
		t.Errorf("%d ended streams are remembered for ever", len(s.under)-1)
	}
	s.mu.Unlock()
}

// TestLossWhileOpening: an OPEN that is read from a connection whose loss is
// known already makes no stream, and a MOVE no connection of a stream.
func TestLossWhileOpening(t *testing.T) {
	s, p := scripted(t, false, Options{Connections: 2})
	q := p.attach(s)
	p.send(open1)
	p.settle()
	q.settle()
	gone := s.lanes[1]
	gone.lose(net.ErrClosed, false)
	if err := s.opened(gone, 3, firstWindow, firstWindow); err == nil {
		t.Error("the OPEN was taken")
	}
	st := accept(t, s)
	if err := st.handle(gone, frameMove, make([]byte, 8)); err == nil {
		t.Error("the MOVE was taken")
	}
	if n := s.Info().Streams; n != 1 || st.travels(gone) {
		t.Errorf("%d streams, on the lost connection: %v", n, st.travels(gone))
	}
}
