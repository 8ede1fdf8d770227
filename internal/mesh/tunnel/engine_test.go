// SPDX-License-Identifier: Apache-2.0

package tunnel_test

import (
	"context"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/mesh/path"
	"github.com/tombolo-io/tombolo/internal/mesh/tunnel"
	"github.com/tombolo-io/tombolo/internal/mesh/tunnel/tunneltest"
)

func TestTwoTalk(t *testing.T) {
	for name, want := range map[string]tunnel.Offloads{"offloads": tunnel.AllOffloads(), "none": {}, "gso": {UDPGSO: true}, "gro": {UDPGRO: true}} {
		t.Run(name, func(t *testing.T) {
			a, b := newNode(t, "10.1.0.1", nil, want), newNode(t, "10.1.0.2", nil, want)
			meet(t, a, b)
			say(t, a, b, 1)
			say(t, b, a, 2)
			flow(t, a, b, 3000)
			if s := a.stat(t, b); s.Handshake.IsZero() || s.Sent == 0 || s.Received == 0 || s.Activity.Sent < 3000 || s.Activity.Received < 1 || !s.Asked.IsZero() {
				t.Errorf("what is known of the peer: %+v", s)
			}
			if n := b.socket.Counts().Unknown.Load() + b.socket.Counts().Stray.Load(); n != 0 {
				t.Errorf("%d packets were of no use", n)
			}
		})
	}
}

// flow sends numbered packets of many sizes, with at most a few under way, and wants
// them all.
func flow(t testing.TB, from, to *node, count uint64) {
	t.Helper()
	ctx := runtest.Within(t)
	const under = 256
	next, got := uint64(0), uint64(0)
	seen := make(map[uint64]bool, count)
	for got < count {
		for next < count && next-got < under {
			size := 1400
			if next%17 == 0 {
				size = 60 + int(next%1200)
			}
			select {
			case from.tun.Out <- tunneltest.Packet(from.addr, to.addr, 1<<32+next, size):
			case <-ctx.Done():
				t.Fatal("the tunnel takes nothing")
			}
			next++
		}
		select {
		case b := <-to.tun.In:
			if n := tunneltest.Number(b); n >= 1<<32 && !seen[n] {
				seen[n] = true
				got++
			}
		case <-ctx.Done():
			t.Fatalf("%d of %d packets arrived", got, next)
		}
	}
}

// stream sends numbered packets, one after the other's arrival, until it is stopped; what
// is lost it says.
func stream(t testing.TB, from, to *node) (passed func() uint64, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var n atomic.Uint64
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			next := 1<<40 + n.Load()
			from.tun.Out <- tunneltest.Packet(from.addr, to.addr, next, 200)
			for {
				select {
				case b := <-to.tun.In:
					if tunneltest.Number(b) != next {
						continue
					}
				case <-time.After(runtest.Patience):
					t.Errorf("packet %d was lost", n.Load())
					return
				}
				break
			}
			n.Add(1)
		}
	})
	return n.Load, func() { cancel(); wg.Wait() }
}

// pass waits until some more packets went through.
func pass(t testing.TB, passed func() uint64) {
	t.Helper()
	until := passed() + 50
	runtest.Eventually(t, "traffic", func() bool { return passed() >= until })
}

// TestTheWayIsSwappedUnderTraffic: an address, another one, a relay, another relay and
// back, and no packet is lost, nor a new session needed.
func TestTheWayIsSwappedUnderTraffic(t *testing.T) {
	r := newRelay()
	a, b := newNode(t, "10.1.0.1", r, tunnel.AllOffloads()), newNode(t, "10.1.0.2", r, tunnel.AllOffloads())
	meet(t, a, b)
	say(t, a, b, 1)
	shaken := a.stat(t, b).Handshake
	passed, stop := stream(t, a, b)
	other := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.77"), b.at.Port())
	for range 3 {
		for _, w := range []path.Path{{Addr: other}, {Relay: "h1"}, {Addr: b.at}, {Relay: "h2"}, {Addr: netip.AddrPortFrom(netip.IPv6Loopback(), b.at.Port())}} {
			if w.Direct() && !a.socket.Has(w.Addr.Addr()) {
				continue
			}
			was := r.count(w.Relay)
			a.engine.SetPath(b.key, w, netip.Addr{})
			pass(t, passed)
			if w.Relay != "" && r.count(w.Relay) == was {
				t.Errorf("nothing went by %v", w)
			}
		}
	}
	stop()
	if s := a.stat(t, b); !s.Handshake.Equal(shaken) {
		t.Errorf("there was another handshake, %v after the first", s.Handshake.Sub(shaken))
	}
	if n := a.socket.Counts().NoPath.Load(); n != 0 {
		t.Errorf("%d packets had no path", n)
	}
}

// TestNoPath: what cannot be sent is counted; when there is a path again all goes on.
func TestNoPath(t *testing.T) {
	a, b := newNode(t, "10.1.0.1", nil, tunnel.Offloads{}), newNode(t, "10.1.0.2", nil, tunnel.Offloads{})
	meet(t, a, b)
	say(t, a, b, 1)
	a.engine.SetPath(b.key, path.Path{}, netip.Addr{})
	for i := range uint64(10) {
		a.tun.Out <- tunneltest.Packet(a.addr, b.addr, i, 100)
	}
	runtest.Eventually(t, "ten packets without a path", func() bool { return a.socket.Counts().NoPath.Load() >= 10 })
	a.engine.SetPath(b.key, path.Path{Relay: "h1"}, netip.Addr{}) // and there is no relay
	a.tun.Out <- tunneltest.Packet(a.addr, b.addr, 11, 100)
	runtest.Eventually(t, "one more", func() bool { return a.socket.Counts().NoPath.Load() >= 11 })
	a.engine.SetPath(b.key, path.Path{Addr: b.at}, netip.Addr{})
	say(t, a, b, 2)
	if _, nobody := tunneltest.Key(t); a.engine.SetPath(nobody, path.Path{}, netip.Addr{}) {
		t.Error("a path of a peer that there is not was taken")
	}
}

// TestAnotherPeersChangesLoseNothing: keys, ranges and the presence of others change under
// traffic between two.
func TestAnotherPeersChangesLoseNothing(t *testing.T) {
	a, b := newNode(t, "10.1.0.1", nil, tunnel.AllOffloads()), newNode(t, "10.1.0.2", nil, tunnel.AllOffloads())
	c := newNode(t, "10.1.0.3", nil, tunnel.AllOffloads())
	meet(t, a, b, c)
	say(t, a, b, 1)
	say(t, a, c, 2)
	shaken := a.stat(t, b).Handshake
	passed, stop := stream(t, a, b)
	cfg := a.config(b, c)
	for i := range 20 {
		cfg.Peers[1].PSK = tunnel.NewSecret([32]byte{byte(i + 1)})
		cfg.Peers[1].Ranges = []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 9, byte(i), 0}), 24)}
		cfg.Peers[0].Ranges = append(cfg.Peers[0].Ranges[:1:1], netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 8, byte(i), 0}), 24))
		want := cfg
		if i%3 == 2 {
			want.Peers = want.Peers[:1] // c is gone, and comes again
		}
		if err := a.engine.Apply(want); err != nil {
			t.Fatal(err)
		}
		until := passed() + 5
		runtest.Eventually(t, "traffic", func() bool { return passed() >= until })
	}
	stop()
	if s := a.stat(t, b); !s.Handshake.Equal(shaken) {
		t.Error("the session did not stay")
	}
}

// TestThePeersOwnPSKChangesUnderTraffic: both ends take another key, one later than the
// other, and the session carries on over it.
func TestThePeersOwnPSKChangesUnderTraffic(t *testing.T) {
	a, b := newNode(t, "10.1.0.1", nil, tunnel.Offloads{}), newNode(t, "10.1.0.2", nil, tunnel.Offloads{})
	meet(t, a, b)
	say(t, a, b, 1)
	shaken := a.stat(t, b).Handshake
	passed, stop := stream(t, a, b)
	fresh := tunnel.NewSecret([32]byte{7})
	if err := a.engine.TryPSK(b.key, fresh); err != nil {
		t.Fatal(err)
	}
	pass(t, passed)
	if err := b.engine.TryPSK(a.key, fresh); err != nil {
		t.Fatal(err)
	}
	runtest.Eventually(t, "a handshake with the new key", func() bool {
		if err := a.engine.Handshake(b.key); err != nil {
			t.Fatal(err)
		}
		return a.stat(t, b).Handshake.After(shaken)
	})
	pass(t, passed)
	stop()
}

func TestWake(t *testing.T) {
	a, b := newNode(t, "10.1.0.1", nil, tunnel.Offloads{}), newNode(t, "10.1.0.2", nil, tunnel.Offloads{})
	meet(t, a, b)
	ctx := runtest.Within(t)
	woken := func(n *node, want *node) {
		t.Helper()
		select {
		case k := <-n.woken:
			if k != want.key {
				t.Errorf("%v woke it", k)
			}
		case <-ctx.Done():
			t.Fatal("nobody was woken")
		}
	}
	a.engine.Watch(b.key)
	b.engine.Watch(a.key)
	say(t, a, b, 1)
	woken(a, b)
	woken(b, a)
	say(t, a, b, 2)
	say(t, b, a, 3)
	select {
	case <-a.woken:
		t.Error("it was woken again, and was not watched")
	default:
	}
	b.engine.Watch(a.key)
	say(t, a, b, 4) // within a session: the first packet that comes
	woken(b, a)
	if act, ok := b.engine.Activity(a.key); !ok || act.LastReceived.IsZero() || act.LastSent.IsZero() {
		t.Errorf("activity: %+v", act)
	}
}

// TestWhoSpeaksNoProbesRoams: WireGuard answers where it was heard, and says so; a
// path that is set counts again.
func TestWhoSpeaksNoProbesRoams(t *testing.T) {
	a, b := newNode(t, "10.1.0.1", nil, tunnel.Offloads{}), newNode(t, "10.1.0.2", nil, tunnel.Offloads{})
	meet(t, a, b)
	cfg := b.config(a)
	cfg.Peers[0].Probes = false // made anew
	if err := b.engine.Apply(cfg); err != nil {
		t.Fatal(err)
	}
	say(t, a, b, 1) // b has no path to a
	say(t, b, a, 2)
	if s := b.stat(t, a); s.Heard != a.at {
		t.Errorf("heard at %v, want %v", s.Heard, a.at)
	}
	if s := a.stat(t, b); s.Heard.IsValid() {
		t.Errorf("one that speaks probes roamed to %v", s.Heard)
	}
	if !b.engine.SetPath(a.key, path.Path{}, netip.Addr{}) {
		t.Error("no path was taken")
	}
	was := b.socket.Counts().NoPath.Load()
	b.tun.Out <- tunneltest.Packet(b.addr, a.addr, 3, 100)
	runtest.Eventually(t, "the path counts again", func() bool { return b.socket.Counts().NoPath.Load() > was })
}

// TestOneEndDies: the other one's engine and its other peers do not mind; a new end
// with the same key is taken.
func TestOneEndDies(t *testing.T) {
	a, b, c := newNode(t, "10.1.0.1", nil, tunnel.AllOffloads()), newNode(t, "10.1.0.2", nil, tunnel.AllOffloads()), newNode(t, "10.1.0.3", nil, tunnel.AllOffloads())
	meet(t, a, b, c)
	say(t, a, b, 1)
	say(t, a, c, 2)
	b.stop()
	for i := range uint64(50) {
		a.tun.Out <- tunneltest.Packet(a.addr, b.addr, i, 100)
	}
	say(t, a, c, 3)
	again := newNode(t, "10.1.0.2", nil, tunnel.AllOffloads())
	again.secret, again.key = b.secret, b.key
	again.apply(t, a)
	again.engine.SetPath(a.key, path.Path{Addr: a.at}, netip.Addr{})
	a.engine.SetPath(b.key, path.Path{Addr: again.at}, netip.Addr{})
	reach(t, again, a, 4) // a may be looking for it at the same moment
	reach(t, a, again, 5)
}

func TestApplyRefuses(t *testing.T) {
	a := newNode(t, "10.1.0.1", nil, tunnel.Offloads{})
	if err := a.engine.Apply(tunnel.Config{}); err == nil {
		t.Error("an engine without a key is one")
	}
	a.apply(t)
	_, k := tunneltest.Key(t)
	for name, cfg := range map[string]tunnel.Config{
		"its own key":       {Key: a.secret, Peers: []tunnel.Peer{{Key: a.key}}},
		"no key":            {Key: a.secret, Peers: []tunnel.Peer{{}}},
		"a key twice":       {Key: a.secret, Peers: []tunnel.Peer{{Key: k}, {Key: k}}},
		"a keepalive":       {Key: a.secret, Peers: []tunnel.Peer{{Key: k, Keepalive: 70000 * time.Second}}},
		"no range":          {Key: a.secret, Peers: []tunnel.Peer{{Key: k, Ranges: []netip.Prefix{{}}}}},
		"no key of its own": {},
	} {
		if err := a.engine.Apply(cfg); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	if all, err := a.engine.Stats(); err != nil || len(all) != 0 {
		t.Errorf("something of it stayed: %v, %v", all, err)
	}
}

// TestAThousandPeers: a change of one is a script of a line or two, whatever the number.
func TestAThousandPeers(t *testing.T) {
	a := newNode(t, "10.1.0.1", nil, tunnel.Offloads{})
	cfg := tunnel.Config{Key: a.secret}
	for i := range 1000 {
		cfg.Peers = append(cfg.Peers, tunnel.Peer{Key: member.Key{1, byte(i), byte(i >> 8)}, Probes: true,
			Ranges: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 2, byte(i >> 8), byte(i)}), 32)}})
	}
	if err := a.engine.Apply(cfg); err != nil {
		t.Fatal(err)
	}
	if all, err := a.engine.Stats(); err != nil || len(all) != 1000 {
		t.Fatalf("%d peers, %v", len(all), err)
	}
	cfg.Peers = cfg.Peers[:1]
	if err := a.engine.Apply(cfg); err != nil {
		t.Fatal(err)
	}
	if all, err := a.engine.Stats(); err != nil || len(all) != 1 {
		t.Fatalf("%d peers, %v", len(all), err)
	}
}

// TestTheFirstPacketNeedsNoSecondHandshake: one to a peer without a path wakes its owner, and
// goes as soon as there is a path; WireGuard alone would wait for 5 s.
func TestTheFirstPacketNeedsNoSecondHandshake(t *testing.T) {
	a, b := newNode(t, "10.1.0.1", nil, tunnel.Offloads{}), newNode(t, "10.1.0.2", nil, tunnel.Offloads{})
	meet(t, a, b)
	a.engine.SetPath(b.key, path.Path{}, netip.Addr{})
	a.engine.Watch(b.key)
	a.tun.Out <- tunneltest.Packet(a.addr, b.addr, 1, 100)
	ctx := runtest.Within(t)
	select {
	case <-a.woken:
	case <-ctx.Done():
		t.Fatal("nobody was woken")
	}
	asked, _ := a.engine.Activity(b.key)
	runtest.Eventually(t, "a handshake that is lost", func() bool { return a.socket.Counts().NoPath.Load() == 1 })
	a.engine.SetPath(b.key, path.Path{Addr: b.at}, netip.Addr{})
	select {
	case p := <-b.tun.In:
		if tunneltest.Number(p) != 1 {
			t.Errorf("packet %d came", tunneltest.Number(p))
		}
	case <-ctx.Done():
		t.Fatal("the packet did not come")
	}
	// WireGuard made one handshake of 148 bytes, the packet of 144 and perhaps a keepalive.
	if s := a.stat(t, b); s.Sent > 148+144+32 || s.Shakes != 1 || asked.Asked.IsZero() {
		t.Errorf("%+v, asked at %v", s, asked.Asked)
	}
	if n := a.socket.Counts().NoPath.Load(); n != 1 {
		t.Errorf("%d handshakes had no path", n)
	}
}
