// SPDX-License-Identifier: Apache-2.0

package ipsectunnel

import (
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel/ipsec"
	"github.com/tombolo-io/tombolo/internal/mesh/path"
	"github.com/tombolo-io/tombolo/internal/mesh/tunnel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// flows sends in both directions.
func (w *world) flows() error {
	return errors.Join(w.nodes[0].sends(), w.nodes[1].sends())
}

// within has a moment pass in small steps, and says when packets did not arrive.
func (w *world) within(d, step time.Duration) error {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(step) {
		synctest.Wait()
		if err := w.flows(); err != nil {
			return err
		}
	}
	return nil
}

// up starts both nodes on their first addresses, and waits until packets flow.
func (w *world) up() (a, b *node) {
	w.t.Helper()
	a, b = w.nodes[0], w.nodes[1]
	a.start()
	b.start()
	a.path(a.addrs[0], b.addrs[0])
	b.path(b.addrs[0], a.addrs[0])
	w.soon(yield)
	return a, b
}

// short has tunnels end within hours in place of days.
func (w *world) short() {
	for _, n := range w.nodes {
		n.limits.Age, n.limits.HardAge = time.Minute, 3*time.Hour
	}
}

func (w *world) soon(within time.Duration) {
	w.t.Helper()
	time.Sleep(within)
	synctest.Wait()
	if err := w.flows(); err != nil {
		w.t.Fatal(err)
	}
}

// inWorld is a test with two nodes that nobody has started.
func inWorld(t *testing.T, fn func(*testing.T, *world)) {
	synctest.Test(t, func(t *testing.T) { fn(t, newWorld(t)) })
}

func TestNothingLeavesBeforeThereIsAPath(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		for _, n := range w.nodes {
			n.start()
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if w.dialed() != 0 || w.nodes[0].kernel.count() != 0 || w.nodes[0].leaves() {
			t.Errorf("%d exchanges, %+v", w.dialed(), w.nodes[0].kernel.peers)
		}
	})
}

func TestOneExchangeForBoth(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.up()
		if w.dialed() != 1 {
			t.Errorf("%d exchanges", w.dialed())
		}
		if e := w.nodes[0].engine; !e.Near(w.nodes[1].addrs[0]) || e.Near(w.nodes[1].addrs[1]) {
			t.Error("it does not know from where its peer calls")
		}
	})
}

// TestShown: both ends show one tunnel, and what one sends the other receives.
func TestShown(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.up()
		time.Sleep(time.Minute) // they have looked
		of := func(n *node) Shown {
			t.Helper()
			s := n.engine.Peers()[n.other().public]
			if s.Fault != nil || len(s.Tunnels) != 1 || !s.Tunnels[0].Sends || s.Tunnels[0].Sent == 0 {
				t.Fatalf("%+v", s)
			}
			return s.Tunnels[0]
		}
		one, two := of(a), of(b)
		if one.In != two.Out || one.Out != two.In || one.Own == two.Own || one.Sent != two.Got ||
			one.Local != two.Remote.Addr() {
			t.Errorf("%+v and %+v", one, two)
		}
		sent, got := a.engine.Use(), b.engine.Use()
		if sent.Sent != one.Sent || sent.Sequence != one.Sent || got.Received != two.Got {
			t.Errorf("%+v sent, %+v received", sent, got)
		}
		if err := w.within(Default.Age+time.Minute, time.Minute); err != nil {
			t.Fatal(err)
		}
		if u := a.engine.Use(); u.Sequence >= u.Sent || u.Sequence == 0 {
			t.Errorf("%+v after new keys", u)
		}
	})
}

// TestShownWithoutKeys: why there are none is told.
func TestShownWithoutKeys(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.nodes[0], w.nodes[1]
		a.start()
		b.start()
		a.engine.SetPath(b.public, path.Path{Addr: netip.MustParseAddrPort("203.0.113.9:4500")}, a.addrs[0])
		time.Sleep(time.Minute)
		if s := a.engine.Peers()[b.public]; s.Fault == nil || len(s.Tunnels) > 0 {
			t.Errorf("%+v", s)
		}
	})
}

func TestOneNodeAsksForChaCha(t *testing.T) {
	for i := range 2 {
		inWorld(t, func(t *testing.T, w *world) {
			w.nodes[i].chacha = true
			a, b := w.up()
			for _, n := range []*node{a, b} {
				if c := n.kernel.states[0].Cipher; c != ipsec.ChaCha {
					t.Errorf("node %d asks, and packets have %v", i, c)
				}
			}
		})
	}
}

func TestNewKeysInTimeAndNoPacketLost(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.up()
		if err := w.within(4*time.Hour, 11*time.Second); err != nil {
			t.Error(err)
		}
		if w.dialed() < 4 || w.dialed() > 6 {
			t.Errorf("%d exchanges in 4 hours", w.dialed())
		}
		if n := max(a.kernel.count(), b.kernel.count()); n > 3 { // two, and one that goes
			t.Errorf("%d states", n)
		}
	})
}

func TestNewKeysAfterSoManyPackets(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.nodes[0].limits.Packets, w.nodes[1].limits.Packets = 50, 50
		w.up()
		if err := w.within(5*time.Minute, time.Second); err != nil {
			t.Error(err)
		}
		if w.dialed() < 5 {
			t.Errorf("%d exchanges for 300 packets", w.dialed())
		}
	})
}

func TestAnotherPathOfBoth(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.up()
		a.path(a.addrs[1], b.addrs[1])
		b.path(b.addrs[1], a.addrs[1])
		if err := w.within(time.Minute, 10*time.Millisecond); err != nil {
			t.Error(err)
		}
		w.nodes[0].mu.Lock()
		w.cut = func(from, to netip.Addr) bool { return from == a.addrs[0] || from == b.addrs[0] }
		w.nodes[0].mu.Unlock()
		w.soon(0)
	})
}

func TestEachByAPathOfItsOwn(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.up()
		b.path(b.addrs[1], a.addrs[1])
		if err := w.within(3*time.Hour, 11*time.Second); err != nil {
			t.Error(err)
		}
		w.mu.Lock()
		w.cut = func(from, to netip.Addr) bool { return from == b.addrs[0] || from == a.addrs[1] }
		w.mu.Unlock()
		w.soon(0) // A sends by its first address, B by its second
	})
}

func TestTheNetworkBetweenIsAwayForLong(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.short()
		w.up()
		cut := true
		w.mu.Lock()
		w.cut = func(netip.Addr, netip.Addr) bool { return cut }
		w.mu.Unlock()
		time.Sleep(w.nodes[0].limits.HardAge * 3 / 4)
		w.mu.Lock()
		cut = false
		w.mu.Unlock()
		w.soon(0) // by the keys from before
		if w.nodes[0].kernel.count() > 2*mostHeld {
			t.Errorf("%d states", w.nodes[0].kernel.count())
		}
		w.soon(longestPause + exchangeTime)
		time.Sleep(w.nodes[0].limits.HardAge / 2) // beyond their end
		w.soon(0)
	})
}

func TestTheHardLimit(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.short()
		w.up()
		w.mu.Lock()
		w.cut = func(netip.Addr, netip.Addr) bool { return true }
		w.mu.Unlock()
		time.Sleep(w.nodes[0].limits.HardAge + time.Second)
		synctest.Wait()
		if w.nodes[0].leaves() {
			t.Error("packets are still sent by keys that are too old")
		}
	})
}

func TestAPeerIsRemoved(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, _ := w.up()
		a.apply(false)
		if a.kernel.count() != 0 || len(a.kernel.peers) != 0 {
			t.Errorf("%d states, %d peers", a.kernel.count(), len(a.kernel.peers))
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if a.kernel.count() != 0 {
			t.Error("the one that was removed has keys again")
		}
		a.apply(true)
		a.path(a.addrs[0], a.other().addrs[0])
		w.soon(longestPause + exchangeTime)
	})
}

func TestANodeHasAnotherCertificate(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		for _, n := range w.nodes {
			if n.stop == nil {
				w.up()
			}
			time.Sleep(time.Minute)
			_, n.signer, _ = ed25519.GenerateKey(rand.Reader)
			n.apply(true)
			if err := w.within(2*time.Second, time.Second/10); err != nil {
				t.Errorf("the other one does not know yet: %v", err)
			}
			n.other().apply(true)
			w.soon(yield + time.Second)
			if err := w.within(time.Minute, time.Second); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestThePortOfANatChanges(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.nodes[0], w.nodes[1]
		for _, p := range []uint16{61000, 62000} {
			w.mu.Lock()
			w.seeAs[b.addrs[0]] = netip.AddrPortFrom(netip.MustParseAddr("203.0.113.1"), p)
			w.mu.Unlock()
			if a.stop == nil {
				a.start()
				b.start()
				b.path(b.addrs[0], a.addrs[0])
			}
			a.path(a.addrs[0], b.addrs[0])
			w.soon(yield)
		}
	})
}

// TestBothNodesAreBehindPortsThatAreForwarded: each calls from another port than it is called at, and no exchange
// follows from the other one's.
func TestBothNodesAreBehindPortsThatAreForwarded(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.nodes[0], w.nodes[1]
		w.forwarded = map[netip.Addr]uint16{a.addrs[0]: 14500, b.addrs[0]: 24500}
		a.start()
		b.start()
		a.engine.SetPath(b.public, path.Path{Addr: netip.AddrPortFrom(b.addrs[0], 24500)}, a.addrs[0])
		b.engine.SetPath(a.public, path.Path{Addr: netip.AddrPortFrom(a.addrs[0], 14500)}, b.addrs[0])
		w.soon(time.Minute)
		if n := w.dialed(); n > 4 {
			t.Errorf("%d exchanges in a minute", n)
		}
	})
}

func TestTheKernelRefusesAState(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.nodes[0], w.nodes[1]
		a.kernel.refuse, b.kernel.refuse = errors.New("no memory"), errors.New("no memory")
		a.start()
		b.start()
		a.path(a.addrs[0], b.addrs[0])
		b.path(b.addrs[0], a.addrs[0])
		w.soon(10 * time.Second)
	})
}

func TestAnExchangeThatOneEndBelievesInAndTheOtherOneDoesNot(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.up()
		begins := a
		if string(b.public[:]) < string(a.public[:]) {
			begins = b
		}
		for range 30 {
			begins.kernel.mu.Lock()
			begins.kernel.refuse, begins.kernel.first = errors.New("no memory"), 1 // by which it would send
			begins.kernel.mu.Unlock()
			if err := w.within(Default.Age+time.Minute, 10*time.Minute); err != nil {
				t.Fatal(err)
			}
		}
		if a.kernel.count() > 6 || b.kernel.count() > 6 {
			t.Errorf("%d and %d states", a.kernel.count(), b.kernel.count())
		}
	})
}

func TestAnotherPathWhileAnExchangeHangs(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.up()
		w.mu.Lock()
		w.cut = func(from, to netip.Addr) bool { return to == b.addrs[0] || to == a.addrs[0] }
		w.mu.Unlock()
		a.path(a.addrs[1], b.addrs[0])
		time.Sleep(time.Second / 10)
		a.path(a.addrs[1], b.addrs[1])
		b.path(b.addrs[1], a.addrs[1])
		w.soon(time.Millisecond)
	})
}

// TestAPathThatIsLost: it is sent by the path that was, as the kernel of a peer works on whose program is away, and
// nothing is begun until there is another one.
func TestAPathThatIsLost(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.up()
		b.end(true)
		a.engine.SetPath(b.public, path.Path{}, netip.Addr{})
		if err := w.within(3*Default.Age, time.Minute); err != nil {
			t.Error(err)
		}
		b.start()
		b.path(b.addrs[0], a.addrs[0])
		a.path(a.addrs[0], b.addrs[0])
		if err := w.within(time.Minute, 100*time.Millisecond); err != nil {
			t.Error(err)
		}
	})
}

func TestTheLinkIsTakenAway(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, _ := w.up()
		a.kernel.mu.Lock()
		a.kernel.away = true
		a.kernel.mu.Unlock()
		time.Sleep(time.Minute)
		select {
		case <-a.engine.Done():
		default:
			t.Error("nobody is told")
		}
	})
}

// TestAPeerStatesThePinOfAnother: it becomes nobody's tunnel, and the node's own ones stay.
func TestAPeerStatesThePinOfAnother(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		for i, n := range w.nodes {
			for k := range 4 {
				n.liars = append(n.liars, tunnel.Peer{Key: member.Key{9, byte(i), byte(k)}, Pin: n.other().pin(), Probes: true})
			}
		}
		a, b := w.up()
		for _, n := range w.nodes {
			for _, l := range n.liars {
				n.engine.SetPath(l.Key, path.Path{Addr: netip.AddrPortFrom(n.other().addrs[0], port)}, n.addrs[0])
			}
		}
		if err := w.within(time.Minute, time.Second); err != nil {
			t.Error(err)
		}
		for _, n := range []*node{a, b} {
			for _, s := range n.kernel.states {
				if s.Peer != n.engine.peers[n.other().public].id && slices.Contains(n.other().addrs, s.To) {
					t.Errorf("packets for another peer are sent to %s", s.To)
				}
			}
		}
	})
}
