// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/member"
)

// TestSessionsOfPlaces: peers without probes are known by the place where they were heard. None
// ends the session of another one, however many handshakes it makes from one place, or from
// many; what is kept of places is bounded, and is given up with their sessions.
func TestSessionsOfPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Socket{}
		s.sessions.init()
		b := newBind(s, &peers{of: map[member.Key]*endpoint{}}, nil)
		s.sessions.add(b)
		place := func(n int) *heard {
			return &heard{source{addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, byte(n >> 8), byte(n)}), uint16(n>>16+1))}}
		}
		index := uint32(0)
		answer := func(at *heard) uint32 {
			index++
			m := make([]byte, sizeResponse)
			m[0] = typeResponse
			binary.LittleEndian.PutUint32(m[4:], index)
			if err := b.Send([][]byte{m}, at); err != nil {
				t.Fatal(err)
			}
			return index
		}
		lives := func(index uint32) bool {
			m := make([]byte, sizeTransport)
			m[0] = typeTransport
			binary.LittleEndian.PutUint32(m[4:], index)
			l := s.sessions.look()
			defer l.done()
			bind, peer := l.find(m)
			return bind == b && peer == nil
		}
		var honest []uint32
		for n := range 200 {
			honest = append(honest, answer(place(n)))
		}
		for range 10 * limit.TunnelIndexes {
			answer(place(1000))
		}
		for n := range limit.TunnelPlaces {
			answer(place(1001 + n))
		}
		for n, i := range honest {
			if !lives(i) {
				t.Fatalf("the session of peer %d is gone", n)
			}
		}
		const most = limit.TunnelPlaces + limit.TunnelIndexes
		if b.places > limit.TunnelPlaces || len(s.sessions.owner) > most {
			t.Errorf("%d places, %d indexes", b.places, len(s.sessions.owner))
		}
		if again := answer(place(7)); !lives(again) {
			t.Error("who has a session gets no other one")
		}
		time.Sleep(limit.TunnelIndex + time.Second)
		if fresh := answer(place(1 << 20)); !lives(fresh) || b.places != 1 || len(b.indexes) != 1 || len(s.sessions.owner) != 1 {
			t.Errorf("after the sessions' end %d places, %d indexes", b.places, len(s.sessions.owner))
		}
	})
}
