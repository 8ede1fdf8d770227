// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"encoding/binary"
	"testing"

	"github.com/libp2p/go-yamux/v5"

	"github.com/tombolo-io/tombolo/internal/limit"
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
		"ours":                                {[]step{out(yamuxSYN, 2), in(yamuxData, 0, 2, 9), take(2)}, 9, 1},
		"ours, taken before it is written":    {[]step{take(2), out(yamuxSYN, 2), in(yamuxData, 0, 2, 9), read(9)}, 0, 1},
		"reset by us":                         {[]step{syn, take(1), data, drop, data, out(yamuxRST, 1), data}, 0, 0},
		"refused by the library":              {[]step{syn, data, out(yamuxRST, 1), data}, 0, 0},
		"reset by the peer: still in memory":  {[]step{syn, take(1), data, in(yamuxWindow, yamuxRST, 1, 0), data}, 100, 0},
		"and then let go":                     {[]step{syn, take(1), data, in(yamuxWindow, yamuxRST, 1, 0), drop}, 0, 0},
		"reset by the peer before it is seen": {[]step{syn, data, in(yamuxWindow, yamuxRST, 1, 0), take(1)}, 100, 0},
		"ended by the peer alone":             {[]step{syn, take(1), data, in(yamuxWindow, yamuxFIN, 1, 0), data}, 200, 1},
		"ended both ways":                     {[]step{syn, take(1), data, in(yamuxData, yamuxFIN, 1, 7), out(yamuxFIN, 1), read(100)}, 7, 0},
		"data with the last end":              {[]step{syn, take(1), out(yamuxFIN, 1), in(yamuxData, yamuxFIN, 1, 7)}, 7, 0},
		"a ping and a farewell":               {[]step{syn, in(2, yamuxSYN, 0, 0), in(3, 0, 0, 0), data}, 100, 1},
		"the session ends: nobody took it":    {[]step{syn, data, end}, 0, 0},
		"the session ends: somebody has it":   {[]step{syn, take(1), data, end}, 100, 1},
		"and lets go then":                    {[]step{syn, take(1), data, end, drop}, 0, 0},
		"a stream after the end":              {[]step{end, take(2), out(yamuxSYN, 2), in(yamuxData, 0, 2, 9)}, 0, 0},
	} {
		for _, cut := range []int{1, 5, 12, 13, 1 << 20} {
			l := newYamuxLedger(NewBudget(1 << 20))
			for _, s := range c.steps {
				s(l, cut)
			}
			if l.unread() != c.unread || l.budget.Unread() != c.unread || len(l.of) != c.known {
				t.Errorf("%s, by %d: %d unread, %d in the budget, %d streams; want %d and %d", name, cut, l.unread(), l.budget.Unread(), len(l.of), c.unread, c.known)
			}
		}
	}
	l := newYamuxLedger(NewBudget(1))
	if err := l.received(append(yamuxFrame(yamuxWindow, yamuxSYN, 1, 0), yamuxFrame(yamuxWindow, yamuxSYN, 1, 0)...)); err == nil {
		t.Error("a stream may be opened twice, and what the first holds is lost")
	}
}

// TestYamuxWindows: to the bound, and not while much is unread.
func TestYamuxWindows(t *testing.T) {
	if c := settings(1); c.MaxStreamWindowSize != limit.YamuxWindow || yamux.VerifyConfig(c) != nil {
		t.Errorf("windows to %d", c.MaxStreamWindowSize)
	}
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
