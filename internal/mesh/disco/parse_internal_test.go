// SPDX-License-Identifier: Apache-2.0

package disco

import (
	"encoding/binary"
	"net/netip"
	"testing"
)

// TestPayloadsByHand: what no program of ours sends, and what an older one does.
func TestPayloadsByHand(t *testing.T) {
	pong := func(addr string, port uint16, flags ...byte) []byte {
		b := binary.BigEndian.AppendUint64([]byte{typePong}, 7)
		raw := netip.MustParseAddr(addr).As16()
		b = binary.BigEndian.AppendUint16(append(b, raw[:]...), port)
		return append(binary.BigEndian.AppendUint16(b, 1400), flags...)
	}
	ping := func(id uint64, n int) []byte {
		return append(binary.BigEndian.AppendUint64([]byte{typePing}, id), make([]byte, n)...)
	}
	for name, c := range map[string]struct {
		payload []byte
		taken   bool
	}{
		"nothing at all":                  {nil, false},
		"a ping":                          {ping(7, 1+pingZeros), true},
		"a ping shorter than its answer":  {ping(7, pingZeros), false},
		"a ping without an id":            {ping(0, 1+pingZeros), false},
		"a pong":                          {pong("192.0.2.1", 5, 0), true},
		"a pong without flags":            {pong("192.0.2.1", 5), true},
		"a pong that lacks a byte more":   {pong("192.0.2.1", 5)[:1+sizePong-1], false},
		"a pong with more than is known":  {pong("192.0.2.1", 5, 1, 2, 3), true},
		"a pong by a relay":               {pong("::", 0, 0), true},
		"a pong that saw a multicast":     {pong("224.0.0.1", 5, 0), false},
		"a pong that saw nobody's port 5": {pong("::", 5, 0), false},
		"a trial":                         {Message{Trial: &Trial{ID: 7}}.append(nil, 0), true},
		"a trial that lacks a byte":       {Message{Trial: &Trial{ID: 7}}.append(nil, 0)[:sizeTrial], false},
		"an unknown type":                 {[]byte{99, 1, 2}, true},
	} {
		m, err := parse(c.payload)
		if (err == nil) != c.taken {
			t.Errorf("%s: %+v, %v", name, m, err)
		}
		if err != nil && (m.Ping != nil || m.Pong != nil || m.Call != nil) {
			t.Errorf("%s: refused, and yet it says %+v", name, m)
		}
	}
	if m, err := parse(pong("192.0.2.1", 5)); err != nil || m.Pong == nil || m.Pong.Wanted || m.Pong.ID != 7 || m.Pong.Size != 1400 || m.Pong.From != netip.MustParseAddrPort("192.0.2.1:5") {
		t.Errorf("a pong without flags is read as %+v, %v", m.Pong, err)
	}
}
