// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"encoding/binary"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/libp2p/go-yamux/v5"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

func yamuxFrame(kind byte, flags uint16, id uint32, payload int) []byte {
	b := binary.BigEndian.AppendUint16([]byte{0, kind}, flags)
	b = binary.BigEndian.AppendUint32(b, id)
	return append(binary.BigEndian.AppendUint32(b, uint32(payload)), make([]byte, payload)...)
}

// TestYamuxLedger follows what is counted, and which streams are remembered, with
// the bytes of the connection cut at every place.
func TestYamuxLedger(t *testing.T) {
	type step func(l *yamuxLedger, cut int)
	var user *yamuxAccount
	in := func(kind byte, flags uint16, id uint32, payload int) step {
		return func(l *yamuxLedger, cut int) {
			for b := yamuxFrame(kind, flags, id, payload); len(b) > 0; {
				n := min(cut, len(b))
				if err := l.received(b[:n]); err != nil {
					t.Fatal(err)
				}
				b = b[n:]
			}
		}
	}
	out := func(flags uint16, id uint32) step {
		return func(l *yamuxLedger, cut int) {
			b := append(yamuxFrame(yamuxData, 0, id, 30), yamuxFrame(yamuxWindow, flags, id, 0)...)
			for len(b) > 0 {
				n := min(cut, len(b))
				l.sent(b[:n])
				b = b[n:]
			}
		}
	}
	take := func(id uint32) step { return func(l *yamuxLedger, _ int) { user = l.take(id) } }
	read := func(n int) step { return func(*yamuxLedger, int) { user.read(n) } }
	drop := func(*yamuxLedger, int) { user.drop() }
	end := func(l *yamuxLedger, _ int) { l.end() }
	syn, data := in(yamuxWindow, yamuxSYN, 1, 0), in(yamuxData, 0, 1, 100)
	closed := func(*yamuxLedger, int) { user.closed() }
	first := in(yamuxData, 0, 1, firstWindow)
	late := in(yamuxData, 0, 2, 9)
	for name, c := range map[string]struct {
		steps  []step
		unread int64
		known  int
	}{
		"data of an open stream":              {[]step{syn, take(1), data}, 100, 1},
		"data along with the opening":         {[]step{in(yamuxData, yamuxSYN, 1, 5), take(1)}, 5, 1},
		"before anybody took it":              {[]step{syn, data}, 100, 1},
		"some is read":                        {[]step{syn, take(1), data, data, read(150)}, 50, 1},
		"of no stream":                        {[]step{data}, 0, 0},
		"ours":                                {[]step{out(yamuxSYN, 2), late, take(2)}, 9, 1},
		"ours, taken before it is written":    {[]step{take(2), out(yamuxSYN, 2), late, read(9)}, 0, 1},
		"ours, over before it is written":     {[]step{take(2), drop, out(yamuxSYN, 2), late, in(yamuxWindow, yamuxRST, 2, 0)}, 0, 0},
		"ours, in the queue still":            {[]step{take(2), drop}, 0, 1},
		"ours, that overtook another":         {[]step{out(yamuxSYN, 4), out(yamuxSYN, 2), late, take(2)}, 9, 2},
		"ours, that is over":                  {[]step{out(yamuxSYN, 2), take(2), late, drop, out(yamuxRST, 2), late}, 0, 0},
		"until the library forgets it":        {[]step{syn, take(1), data, out(yamuxRST, 1), data}, 200, 1},
		"reset by us":                         {[]step{syn, take(1), data, drop, data, out(yamuxRST, 1), data}, 0, 0},
		"reset before it is read":             {[]step{syn, take(1), data, drop, read(100), data}, 0, 0},
		"refused by the library":              {[]step{syn, data, out(yamuxRST, 1), data}, 0, 0},
		"a first window before it is taken":   {[]step{syn, first}, firstWindow, 1},
		"and after":                           {[]step{syn, first, take(1), data}, firstWindow + 100, 1},
		"more than that: it was refused":      {[]step{syn, first, data, data}, 0, 0},
		"reset by the peer: still in memory":  {[]step{syn, take(1), data, in(yamuxWindow, yamuxRST, 1, 0), data}, 100, 0},
		"with data":                           {[]step{syn, take(1), in(yamuxData, yamuxRST, 1, 3), data}, 3, 0},
		"and then let go":                     {[]step{syn, take(1), data, in(yamuxWindow, yamuxRST, 1, 0), drop}, 0, 0},
		"reset by the peer before it is seen": {[]step{syn, data, in(yamuxWindow, yamuxRST, 1, 0), data, take(1)}, 100, 0},
		"ended by the peer alone":             {[]step{syn, take(1), data, in(yamuxWindow, yamuxFIN, 1, 0), data}, 200, 1},
		"ended by us alone":                   {[]step{syn, take(1), closed, data, out(yamuxFIN, 1), data}, 200, 1},
		"ended both ways":                     {[]step{syn, take(1), data, in(yamuxData, yamuxFIN, 1, 7), closed, data, read(100)}, 7, 0},
		"data with the last end":              {[]step{syn, take(1), closed, in(yamuxData, yamuxFIN, 1, 7), data}, 7, 0},
		"a ping and a farewell":               {[]step{syn, in(2, yamuxSYN, 0, 0), in(3, 0, 0, 0), data}, 100, 1},
		"the session ends: nobody took it":    {[]step{syn, data, end}, 0, 0},
		"the session ends: somebody has it":   {[]step{syn, take(1), data, end}, 100, 0},
		"and reads on":                        {[]step{syn, take(1), data, end, read(40)}, 60, 0},
		"and lets go then":                    {[]step{syn, take(1), data, end, drop}, 0, 0},
		"a stream after the end":              {[]step{end, take(2), out(yamuxSYN, 2), late}, 0, 0},
		"the end of what is in the queue":     {[]step{take(2), drop, end, out(yamuxSYN, 2), late}, 0, 0},
	} {
		for _, cut := range []int{1, 5, 12, 13, 1 << 20} {
			l := newYamuxLedger(Options{Budget: NewBudget(1 << 20)}, 2)
			for _, s := range c.steps {
				s(l, cut)
			}
			if l.unread() != c.unread || l.budget.Unread() != c.unread || len(l.of) != c.known {
				t.Errorf("%s, by %d: %d unread, %d in the budget, %d streams; want %d and %d", name, cut, l.unread(), l.budget.Unread(), len(l.of), c.unread, c.known)
			}
		}
	}
	syn1 := yamuxFrame(yamuxWindow, yamuxSYN, 1, 0)
	for name, c := range map[string]struct {
		sent, said []byte
	}{
		"opened twice":              {nil, append(syn1, syn1...)},
		"ours, and not open":        {nil, yamuxFrame(yamuxData, 0, 2, 5)},
		"ours, later than any":      {yamuxFrame(yamuxWindow, yamuxSYN, 2, 0), yamuxFrame(yamuxData, 0, 4, 5)},
		"ours, that was overtaken":  {yamuxFrame(yamuxWindow, yamuxSYN, 6, 0), yamuxFrame(yamuxWindow, 0, 4, 0)},
		"in the name of our opener": {nil, append(syn1, yamuxFrame(yamuxWindow, yamuxFIN, 2, 0)...)},
	} {
		l := newYamuxLedger(Options{Budget: NewBudget(1)}, 2)
		l.sent(c.sent)
		if err := l.received(c.said); err == nil {
			t.Errorf("%s: the session goes on, with bytes that are not counted", name)
		}
	}
}

// TestYamuxWindows: they grow while little is unread.
func TestYamuxWindows(t *testing.T) {
	b := NewBudget(100)
	m, err := yamuxGrowth{b}.manager()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		unread   int64
		priority uint8
		grows    bool
	}{{0, 128, true}, {50, 128, true}, {51, 128, false}, {200, 128, false}, {200, 255, true}} {
		b.unread.Store(c.unread)
		if err := m.ReserveMemory(1<<20, c.priority); (err == nil) != c.grows {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestYamuxTallies: what a session and a stream count with is what the ledger does,
// also for what came before the stream had a user, and back to nothing.
func TestYamuxTallies(t *testing.T) {
	for name, end := range map[string]func(*yamuxAccount){
		"read":    func(a *yamuxAccount) { a.read(300) },
		"dropped": (*yamuxAccount).drop,
	} {
		t.Run(name, func(t *testing.T) {
			var session, stream atomic.Int64
			l := newYamuxLedger(Options{Budget: NewBudget(1 << 20), Tally: &session}, 2)
			if err := l.received(yamuxFrame(yamuxData, yamuxSYN, 1, 100)); err != nil {
				t.Fatal(err)
			}
			st := &yamuxStream{unread: l.take(1)}
			st.Tally(&stream)
			if err := l.received(yamuxFrame(yamuxData, 0, 1, 200)); err != nil {
				t.Fatal(err)
			}
			if a, b, c := stream.Load(), session.Load(), st.Unread(); a != 300 || b != 300 || c != 300 {
				t.Fatalf("%d, %d and %d are counted", a, b, c)
			}
			end(st.unread)
			if a, b, c := stream.Load(), session.Load(), l.unread(); a != 0 || b != 0 || c != 0 {
				t.Fatalf("%d, %d and %d stay", a, b, c)
			}
		})
	}
}

// TestYamuxCountsBehindAnEndThatWaits: the end of our direction waits in the queue of a
// peer that does not read. What that sends behind its own end is kept by the library
// meanwhile, and counted.
func TestYamuxCountsBehindAnEndThatWaits(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	session, err := Server(Yamux, near, Options{Incoming: 8})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	say := func(b []byte) {
		t.Helper()
		if _, err := far.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	take := func(id uint32) *yamuxStream {
		t.Helper()
		say(yamuxFrame(yamuxWindow, yamuxSYN, id, 0))
		s, err := session.AcceptStream(runtest.Within(t))
		if err != nil {
			t.Fatal(err)
		}
		return s.(*yamuxStream)
	}
	ends, other := take(1), take(3)
	other.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
	for err == nil { // until the queue is full
		_, err = other.Write([]byte("x"))
	}
	say(yamuxFrame(yamuxWindow, yamuxFIN, 1, 0))
	say(yamuxFrame(yamuxData, 0, 3, 1))
	if _, err := io.ReadFull(other, make([]byte, 1)); err != nil { // the end has been seen
		t.Fatal(err)
	}
	closed := make(chan error, 1)
	go func() { closed <- ends.CloseWrite() }()
	ends.Stream.SetWriteDeadline(time.Now().Add(-time.Second))
	runtest.Eventually(t, "our direction ends", func() bool {
		_, err := ends.Stream.Write([]byte("x"))
		return err == yamux.ErrStreamClosed
	})
	say(yamuxFrame(yamuxData, 0, 1, 100))
	say(yamuxFrame(2, 0, 0, 0)) // when this has been taken the data has
	if n := ends.Unread(); n != 100 {
		t.Errorf("%d bytes are counted", n)
	}
	select {
	case err := <-closed:
		t.Fatal("the end did not wait", err)
	default:
	}
	ends.Reset(0)
	go io.Copy(io.Discard, far)
	<-closed
	runtest.Eventually(t, "nothing stays", func() bool { return session.Info().Unread == 0 })
}
