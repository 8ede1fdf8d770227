// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"context"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/fault"
	"github.com/tombolo-io/tombolo/internal/limit"
)

// text is a DATA frame of stream 1 with letters.
func text(letters string) string { return fmt.Sprintf("01 %06x 00000001 %x", len(letters), letters) }

func move(at int) string { return numbered(9, 1, uint64(at)) }

// TestMoves: the peer moves its direction; the reader gets every byte in order,
// and MOVED comes when the last byte before MOVE has come, no sooner.
func TestMoves(t *testing.T) {
	const (
		fin  = "04 000000 00000001"
		rst5 = "05 000004 00000001 00000005"
	)
	type step struct {
		line
		moved int // -1: the session says nothing, else how many MOVEs are done
	}
	quiet := func(l line) step { return step{l, -1} }
	c := func(frames ...string) line { return line{'C', strings.Join(frames, " ")} }
	for name, script := range map[string]struct {
		steps []step
		text  string
		err   error
	}{
		"at once":                  {[]step{quiet(a(text("ab"))), {b(move(2), text("cd"), fin), 1}}, "abcd", io.EOF},
		"before the first byte":    {[]step{{b(move(0), text("ab"), fin), 1}}, "ab", io.EOF},
		"bytes are under way":      {[]step{quiet(b(move(4), text("ef"))), quiet(a(text("abc"))), {a(text("d")), 1}, quiet(b(text("gh"), fin))}, "abcdefgh", io.EOF},
		"nothing came before":      {[]step{quiet(b(move(3), text("d"))), {a(text("abc")), 1}, quiet(b(fin))}, "abcd", io.EOF},
		"an early FIN":             {[]step{quiet(b(move(2), text("c"), fin)), {a(text("ab")), 1}}, "abc", io.EOF},
		"an early FIN and RST":     {[]step{quiet(b(move(2), text("c"), fin, rst5)), quiet(a(text("ab")))}, "abc", io.EOF},
		"an early RST":             {[]step{quiet(b(move(2), text("c"), rst5)), quiet(a(text("ab")))}, "abc", &ResetError{5}},
		"RST on a foreign one":     {[]step{quiet(a(text("ab"))), quiet(b(rst5))}, "ab", &ResetError{5}},
		"RST 8 on a foreign one":   {[]step{quiet(a(text("ab"))), quiet(b("05 000004 00000001 00000008"))}, "ab", lostConnection()},
		"RST on a third one":       {[]step{quiet(b(move(9), text("c"))), quiet(a(text("ab"))), quiet(c(rst5))}, "ab", &ResetError{5}},
		"FIN overtaken by its own": {[]step{quiet(a(text("ab"))), {b(move(2), fin), 1}, quiet(a(fin))}, "ab", io.EOF},
		"FIN overtakes its own":    {[]step{quiet(a(text("ab"), fin)), {b(move(2), fin), 1}}, "ab", io.EOF},
		"FIN between MOVE and FIN": {[]step{quiet(a(text("ab"))), {b(move(2)), 1}, quiet(a(fin)), quiet(b(fin))}, "ab", io.EOF},
		"a chain": {[]step{
			quiet(a(text("a"))), {b(move(1), text("b")), 1}, {c(move(2), text("c")), 2}, {a(move(3), text("d")), 3}, quiet(a(fin)),
		}, "abcd", io.EOF},
		"a chain of early ones": {[]step{
			quiet(b(move(2), text("cd"))), {a(text("ab")), 1}, quiet(c(move(6), text("gh"), fin)), {b(text("ef")), 2},
		}, "abcdefgh", io.EOF},
		"twice without a byte": {[]step{{b(move(0)), 1}, {c(move(0)), 2}, {a(move(0), text("a"), fin), 3}}, "a", io.EOF},
	} {
		t.Run(name, func(t *testing.T) {
			s, first := scripted(t, false, Options{Connections: 3})
			peers := map[byte]*peer{'A': first, 'B': first.attach(s), 'C': first.attach(s)}
			first.send(open1)
			first.settle()
			for i, step := range script.steps {
				peers[step.on].send(step.frames)
				peers[step.on].settleAll(peers)
				var want []string
				if step.moved >= 0 {
					want = []string{digits(numbered(10, 1, uint64(step.moved)))}
				}
				if said := drained(peers); !slices.Equal(said, want) {
					t.Fatalf("step %d: the session says %q, want %q", i, said, want)
				}
			}
			st := accept(t, s)
			reads(t, st, script.text, script.err)
			st.Close()
			if n := s.budget.Unread(); n != 0 {
				t.Errorf("%d bytes are unread", n)
			}
			eventually(t, "the stream is gone", func() bool { return s.Info().Streams == 0 })
		})
	}
}

// settleAll waits for what was sent on p first: its answers may come on any.
func (p *peer) settleAll(peers map[byte]*peer) {
	p.t.Helper()
	p.heard = append(p.heard, p.settle()...)
	for _, q := range peers {
		if q != p {
			q.heard = append(q.heard, q.settle()...)
		}
	}
}

// drained is what was heard meanwhile on all connections.
func drained(peers map[byte]*peer) (all []string) {
	for _, p := range peers {
		for _, f := range p.heard {
			all = append(all, digits(f))
		}
		p.heard = nil
	}
	return all
}

// TestMoveOfClosed: a direction that nobody reads any more can move all the same.
func TestMoveOfClosed(t *testing.T) {
	s, p := scripted(t, false, Options{Connections: 2})
	q := p.attach(s)
	p.send(open1, text("ab"))
	p.settle()
	st := accept(t, s)
	p.settle()
	release := halt(s.lanes[0])
	st.Close()
	q.send(move(5), text("fg"))
	q.quiet()
	p.send(text("cde"), "63 000000 00000000")
	eventually(t, "the stream is read on B", func() bool {
		st.mu.Lock()
		defer st.mu.Unlock()
		return st.receiver.lane == s.lanes[1] && st.offset == 7
	})
	q.send(text("hi"))
	q.quiet()
	release()
	p.want(numbered(10, 1, 1), "04 000000 00000001", "05 000004 00000001 00000000")
	p.quiet()
	q.quiet()
	if n := s.budget.Unread(); n != 0 {
		t.Errorf("%d bytes are unread for ever", n)
	}
}

// halt keeps a connection from sending until it is released.
func halt(l *lane) (release func()) {
	for l.mu.Lock(); l.turn; l.mu.Lock() {
		l.mu.Unlock()
		runtime.Gosched()
	}
	l.turn = true
	l.mu.Unlock()
	return func() {
		l.mu.Lock()
		l.turn = false
		l.mu.Unlock()
		l.kick()
	}
}

// TestOurMove: our direction moves when it may, once at a time.
func TestOurMove(t *testing.T) {
	s, p := scripted(t, false, Options{Connections: 3})
	q, r := p.attach(s), p.attach(s)
	s.mu.Lock()
	lanes := slices.Clone(s.lanes)
	s.mu.Unlock()
	st := open(t, s, "a")
	p.want(open2, "01 000001 00000002 61")
	to := func(i int) {
		travel(st, lanes[i])
		st.send()
	}
	write := func(text string) {
		t.Helper()
		if _, err := st.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	to(1)
	p.quiet() // MOVE could overtake OPEN
	q.quiet()
	write("b")
	p.want("01 000001 00000002 62")
	p.send(numbered(3, 2, 1<<20))
	q.want(numbered(9, 2, 2))
	write("c")
	q.want("01 000001 00000002 63")
	to(2)
	write("d")
	q.want("01 000001 00000002 64")
	for _, other := range []uint64{0, 2, 1 << 63} { // not this move
		p.send(numbered(10, 2, other))
		p.settle()
	}
	r.quiet()
	p.send(numbered(10, 2, 1))
	r.want(numbered(9, 2, 4))
	write("e")
	r.want("01 000001 00000002 65")
	st.CloseWrite()
	r.want("04 000000 00000002")
	to(0) // the connection is left: FIN comes again
	r.quiet()
	q.send(numbered(10, 2, 2))
	p.want(numbered(9, 2, 5), "04 000000 00000002")
	p.send("04 000000 00000002")
	p.quiet()
	if n := s.Info().Streams; n != 0 {
		t.Errorf("%d streams", n)
	}
}

// TestLoss of a connection: which streams end, which go on, what is said and
// repeated to the peer.
func TestLoss(t *testing.T) {
	s, p := scripted(t, false, Options{Connections: 3})
	q := p.attach(s)
	for _, id := range []int{1, 5, 7, 9} {
		p.send(fmt.Sprintf("02 000008 %08x 00040000 00040000", id))
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
	eventually(t, "the loss is known", func() bool { return s.Info().Connections == 3 })
	p.quiet()
	r.conn.Close()
	p.want("05 000004 00000001 00000008", "05 000004 00000003 00000008")
	p.conn.Close()
	q.want("05 000004 00000001 00000008", "05 000004 00000003 00000008")
	s.mu.Lock()
	for i := range s.under {
		s.under[i].at -= limit.DeadIdle + 1 // they are history by now
	}
	s.remember(99, nil)
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
	eventually(t, "one connection is left", func() bool { return s.Info().Connections == 1 })
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
	eventually(t, "one connection is left", func() bool { return s.Info().Connections == 1 })
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
		s.onTick()
		p.quiet()
		open(t, s, "a")
		p.next()
		p.next()
		q := p.attach(s)
		s.onTick()
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
	eventually(t, "the connection belongs to the session", func() bool { return s.Info().Connections == 2 })
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
