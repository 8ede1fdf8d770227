// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-io/tombolo/internal/limit"
	"github.com/tombolo-io/tombolo/internal/path"
)

// counting is a relay that counts.
type counting struct{ packets atomic.Int64 }

func (c *counting) Relay(_ string, _ Key, packets [][]byte) { c.packets.Add(int64(len(packets))) }

// TestOneEndGoesFirst: the end with the greater key sends its handshake at once, and the
// other one a moment later, unless it has answered in the meantime.
func TestOneEndGoesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, relay := &Socket{}, &counting{}
		s.sessions.init()
		p := &peers{of: map[Key]*endpoint{}}
		b := newBind(s, p, relay)
		b.public.Store(&Key{5})
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
			e := p.add(Key{k})
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
