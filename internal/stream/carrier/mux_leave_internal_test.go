// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"context"
	"io"
	"net"
	"slices"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// TestLeaveOfPeer: our directions move away, those that have ended too, then we
// leave as well; what is opened there later does not begin there.
func TestLeaveOfPeer(t *testing.T) {
	s, p := scripted(t, false, Options{Connections: 2})
	q := p.attach(s)
	q.send(open1, open3)
	q.settle()
	live, half := accept(t, s), accept(t, s)
	live.Write([]byte("a"))
	half.CloseWrite()
	q.want("01 000001 00000001 61", "04 000000 00000003")
	p.send(numbered(9, 1, 0), numbered(9, 3, 0))
	q.want(numbered(10, 1, 1), numbered(10, 3, 1))
	q.send("0b 000000 00000000")
	q.settle()
	s.retire(s.now())
	both := []string{p.next(), p.next(), p.next()}
	if slices.Sort(both); digits(both[0]) != "0400000000000003" || digits(both[1]) != digits(numbered(9, 1, 1)) || digits(both[2]) != digits(numbered(9, 3, 0)) {
		t.Errorf("the session says %q", both)
	}
	q.quiet() // not before MOVED
	s.retire(s.now())
	p.send(numbered(10, 1, 1))
	p.settle()
	s.retire(s.now())
	q.quiet()
	q.send("02 000008 00000005 00040000 00040000") // against the rules, and survived
	q.settle()
	p.want(numbered(9, 5, 0))
	late := accept(t, s)
	p.send(numbered(10, 3, 1))
	p.settle()
	late.Write([]byte("c"))
	p.want("01 000001 00000005 63")
	p.send(numbered(10, 5, 1), numbered(9, 5, 0))
	p.want(numbered(10, 5, 1))
	s.retire(s.now())
	q.want("0b 000000 00000000")
	q.send("02 000008 00000007 00040000 00040000") // the same, and nothing more follows there
	p.want(numbered(9, 7, 0))
	p.send(numbered(10, 7, 1), numbered(9, 7, 0))
	p.want(numbered(10, 7, 1))
	q.conn.Close()
	runtest.Eventually(t, "one connection is left", func() bool { return s.Info().Connections == 1 })
	p.quiet() // nothing was lost
	live.Write([]byte("b"))
	p.want("01 000001 00000001 62")
	p.quiet()
}

// TestLeaveOfOurs: a client leaves a connection, behind everything that it has
// sent there, and closes it when the server has left too.
func TestLeaveOfOurs(t *testing.T) {
	s, p := scripted(t, true, Options{Connections: 2})
	q := p.attach(s)
	q.send(open2)
	q.settle()
	st := accept(t, s)
	st.Write([]byte("a"))
	q.want("01 000001 00000002 61")
	b := s.lanes[1]
	leave(s, b)
	s.retire(s.now())
	p.want(numbered(9, 2, 1))
	q.quiet()
	open(t, s, "") // nothing new goes there
	p.want("02 000008 00000001 00040000 00040000")
	p.send(numbered(10, 2, 1))
	p.settle()
	s.retire(s.now())
	q.want("0b 000000 00000000")
	s.retire(s.now())
	q.quiet() // once
	p.send(numbered(9, 2, 0))
	p.want(numbered(10, 2, 1))
	q.send("0b 000000 00000000")
	if frames := q.rest(); len(frames) > 1 {
		t.Errorf("the session says %q", frames)
	}
	runtest.Eventually(t, "one connection is left", func() bool { return s.Info().Connections == 1 })
	p.send("01 000001 00000002 61", "04 000000 00000002")
	reads(t, st, "a", io.EOF)
	p.quiet()
}

// TestLeaveSendsFirst: what waits for a connection that both have left is sent
// before it is closed.
func TestLeaveSendsFirst(t *testing.T) {
	s, p := scripted(t, true, Options{Connections: 2})
	q := p.attach(s)
	q.settle()
	release := halt(s.lanes[1])
	s.lanes[1].control(unhex(t, "63 000001 00000000 61"))
	s.sendLeave(s.lanes[1])
	s.left(s.lanes[1])
	release()
	if frames := q.rest(); len(frames) != 2 || frames[1] != "0b 000000 00000000" {
		t.Errorf("%q", frames)
	}
	p.settle()
}

// TestLeaveOfTheLast connection is not answered.
func TestLeaveOfTheLast(t *testing.T) {
	for _, client := range []bool{true, false} {
		s, p := scripted(t, client, Options{Connections: 2})
		p.send("0b 000000 00000000")
		p.settle()
		tickNow(s)
		p.quiet()
		open(t, s, "a")
		p.next()
		p.next()
		q := p.attach(s)
		tickNow(s)
		open(t, s, "b") // the other one is left as soon as there is another
		if f := q.next(); f[:2] != "02" {
			t.Errorf("client %v: %s", client, f)
		}
	}
}

// TestConnections: the server's wish is honoured as far as the options allow.
func TestConnections(t *testing.T) {
	dialled := make(chan *peer)
	var s *muxSession
	dial := func(ctx context.Context) (net.Conn, error) {
		near, far := pair(t, false)
		select {
		case dialled <- newPeer(t, far):
		case <-ctx.Done():
			near.Close()
			return nil, ctx.Err()
		}
		return Wrap(near), nil
	}
	s, p := scripted(t, true, Options{Connections: 2, Dial: dial})
	p.send("0c 000004 00000000 00000000")
	p.send("0c 000004 00000000 00000001")
	p.quiet()
	if n := s.Info().Connections; n != 1 {
		t.Errorf("%d connections without a wish", n)
	}
	p.send("0c 000004 00000000 00000010")
	q := done(t, "a connection is dialled", dialled)
	runtest.Eventually(t, "the connection belongs to the session", func() bool { return s.Info().Connections == 2 })
	p.send("0c 000004 00000000 00000010")
	p.quiet()
	q.quiet()
	if n := s.Info().Connections; n != 2 {
		t.Errorf("%d connections, of 2", n)
	}
	near, _ := pair(t, false)
	if err := s.Attach(Wrap(near)); !fault.Has(err, fault.CodeLimit) {
		t.Errorf("attach a third one: %v", err)
	}
}
