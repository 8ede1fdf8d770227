// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"encoding/binary"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/mesh/path"
)

// counting is a relay that counts.
type counting struct{ packets atomic.Int64 }

func (c *counting) Relay(_ string, _ member.Key, packets [][]byte) {
	c.packets.Add(int64(len(packets)))
}

// TestOneEndGoesFirst: the end with the greater key sends its handshake at once, and the
// other one a moment later, unless it has answered in the meantime.
func TestOneEndGoesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, relay := &Socket{}, &counting{}
		s.sessions.init()
		p := &peers{of: map[member.Key]*endpoint{}}
		b := newBind(s, p, relay)
		b.public.Store(&member.Key{5})
		b.held.alarm.Start()
		defer b.held.alarm.Stop()
		shake := func(kind byte, size int) [][]byte {
			m := make([]byte, size)
			m[0] = kind
			return [][]byte{m}
		}
		initiation, response := shake(typeInitiation, sizeInitiation), shake(typeResponse, sizeResponse)
		sent := func() int64 {
			synctest.Wait()
			return relay.packets.Swap(0)
		}
		end := func(k byte) *endpoint {
			e := p.add(member.Key{k})
			e.take(&way{Way: path.Way{Relay: "h"}})
			return e
		}
		lesser, greater := end(4), end(6)
		b.sendPeer(initiation, lesser)
		if n := sent(); n != 1 {
			t.Errorf("to a lesser key %d packets are sent at once, want 1", n)
		}

		b.sendPeer(initiation, greater)
		greater.take(&way{Way: path.Way{Relay: "another"}})
		if n := sent(); n != 0 {
			t.Errorf("to a greater key %d packets are sent at once, by its first way or the next", n)
		}
		time.Sleep(limit.TunnelHold)
		if n := sent(); n != 1 {
			t.Errorf("to a greater key %d packets are sent after a moment, want 1", n)
		}
		greater.take(&way{Way: path.Way{Relay: "h"}})
		if n := sent(); n != 1 {
			t.Errorf("by another way %d packets are sent again, want 1", n)
		}

		b.sendPeer(initiation, greater)
		b.sendPeer(response, greater)
		if n := sent(); n != 1 {
			t.Errorf("of a handshake and an answer %d packets are sent at once, want the answer", n)
		}
		time.Sleep(2 * limit.TunnelHold)
		if n := sent(); n != 0 {
			t.Errorf("after an answer %d packets of one's own handshake are sent", n)
		}
		greater.take(&way{Way: path.Way{Relay: "another"}})
		if n := sent(); n != 1 {
			t.Errorf("by another way %d packets are sent again, want the answer", n)
		}

		for range limit.TunnelHeld + 3 {
			b.sendPeer(initiation, greater)
		}
		if n := sent(); n != 0 {
			t.Errorf("%d packets of handshakes that are no more are sent", n)
		}
		time.Sleep(limit.TunnelHold)
		if n := sent(); n != 1 {
			t.Errorf("of many handshakes %d are sent, want the newest", n)
		}
	})
}

// TestAnAnswerToAnAddressTakesThePlaceOfOurs: a peer without probes is answered at the address at which it
// was heard. A handshake of ours that waits for it to go first is not sent then, and is where the answer
// went to another peer.
func TestAnAnswerToAnAddressTakesThePlaceOfOurs(t *testing.T) {
	for _, other := range []uint32{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			greater, lesser := pairOfEnds(t, 50*time.Millisecond)
			lesser.engine.peers.get(greater.key).probes.Store(false)
			greater.lose = 1
			greater.say()
			synctest.Wait()
			theirs := greater.engine.peers.get(lesser.key).newest.Load().packet
			lesser.say()
			synctest.Wait()
			b := lesser.engine.bind.Load()
			if lesser.sent.Load() != 0 || b.crosses(theirs) {
				t.Fatal("the peer does not go first")
			}
			answer := make([]byte, sizeResponse)
			answer[0] = typeResponse
			binary.LittleEndian.PutUint32(answer[8:], binary.LittleEndian.Uint32(theirs[4:])+other)
			if err := b.Send([][]byte{answer}, &heard{source{addr: netip.MustParseAddrPort("192.0.2.1:1")}}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * limit.TunnelHold)
			synctest.Wait()
			if sent := lesser.sent.Load() > 0; sent != (other != 0) {
				t.Errorf("a handshake of ours is sent: %v, after an answer to this peer: %v", sent, other == 0)
			}
		})
	}
}
