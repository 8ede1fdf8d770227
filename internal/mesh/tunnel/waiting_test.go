// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"encoding/binary"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/mesh/path"
)

// twoDevices gives the binds of two devices of one socket, and their common peer.
func twoDevices(t *testing.T) (one, two *Bind, e *endpoint, sent func() int64) {
	t.Helper()
	s, relay := &Socket{}, &counting{}
	s.sessions.init()
	p := &peers{of: map[member.Key]*endpoint{}}
	e = p.add(member.Key{6})
	e.probes.Store(true)
	e.take(&way{Way: path.Way{Relay: "h"}})
	var all []*Bind
	for i := range 2 {
		b := newBind(s, p, relay)
		b.public.Store(&member.Key{byte(4 + i)})
		b.held.alarm.Start()
		t.Cleanup(b.held.alarm.Stop)
		all = append(all, b)
	}
	return all[0], all[1], e, func() int64 {
		synctest.Wait()
		return relay.packets.Swap(0)
	}
}

// shaking is a packet of a handshake with an index of the sender.
func shaking(kind byte, size int, index uint32) [][]byte {
	p := make([]byte, size)
	p[0] = kind
	binary.LittleEndian.PutUint32(p[4:], index)
	return [][]byte{p}
}

// TestHandshakesOfTwoDevicesWait: both of a node's devices begin a handshake with a peer while another
// peer's came in. Each is sent a moment later, and that of one that has answered the peer is not.
func TestHandshakesOfTwoDevicesWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two, e, sent := twoDevices(t)
		begin := func() {
			for i, b := range []*Bind{one, two} {
				b.crossing.came.Store(time.Now().UnixNano())
				b.sendPeer(shaking(typeInitiation, sizeInitiation, uint32(10+i)), e)
			}
		}
		begin()
		if n := sent(); n != 0 {
			t.Errorf("%d handshakes are sent at once", n)
		}
		time.Sleep(limit.TunnelBeside)
		if n := sent(); n != 2 {
			t.Errorf("of the handshakes of two devices %d are sent, want both", n)
		}
		time.Sleep(limit.TunnelAgain)
		begin()
		one.sendPeer(shaking(typeResponse, sizeResponse, 20), e)
		if n := sent(); n != 1 {
			t.Errorf("%d packets are sent at once, want the answer", n)
		}
		time.Sleep(limit.TunnelBeside)
		if n := sent(); n != 1 {
			t.Errorf("after an answer of one device %d handshakes are sent, want that of the other one", n)
		}
	})
}

// TestSessionsOfAnotherDevice: a peer's packets by the session of one device say nothing of the other
// device's answer, which the peer may have had no packet for yet.
func TestSessionsOfAnotherDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two, e, sent := twoDevices(t)
		one.sendPeer(shaking(typeResponse, sizeResponse, 1), e)
		packet := shaking(typeTransport, sizeTransport, 1)[0]
		come := func() {
			look := one.socket.sessions.look()
			owner, peer := look.find(packet)
			look.done()
			peer.came(owner, packet)
		}
		come()
		two.sendPeer(shaking(typeResponse, sizeResponse, 2), e)
		sent()
		time.Sleep(time.Second)
		come()
		time.Sleep(limit.TunnelAgain)
		two.sendPeer(shaking(typeInitiation, sizeInitiation, 3), e)
		if n := sent(); n != 1 {
			t.Errorf("of a handshake %d are sent, want 1", n)
		}
	})
}

// TestNoneIsBegunRightAfterAnAnswer: WireGuard may have begun one while it answered. It is sent neither
// then nor later, and another one is as soon as the peer uses the answer, or has had the time to.
func TestNoneIsBegunRightAfterAnAnswer(t *testing.T) {
	for _, uses := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			b, _, e, sent := twoDevices(t)
			b.sendPeer(shaking(typeResponse, sizeResponse, 1), e)
			b.sendPeer(shaking(typeInitiation, sizeInitiation, 2), e)
			if n := sent(); n != 1 {
				t.Errorf("%d packets are sent, want the answer alone", n)
			}
			if uses {
				e.came(b, shaking(typeTransport, sizeTransport, 1)[0])
			} else {
				time.Sleep(limit.TunnelCrossed)
				if n := sent(); n != 0 {
					t.Errorf("%d packets are sent later", n)
				}
				time.Sleep(time.Nanosecond)
			}
			b.sendPeer(shaking(typeInitiation, sizeInitiation, 3), e)
			if n := sent(); n != 1 {
				t.Errorf("of another handshake %d are sent, want 1 (the peer uses the answer: %v)", n, uses)
			}
		})
	}
}
