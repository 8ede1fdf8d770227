// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"net/netip"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/discovery/seal"
	"github.com/tombolo-io/tombolo/internal/mesh/path"
)

func at(s string) path.Path { return path.Path{Addr: netip.MustParseAddrPort(s)} }

func TestTunnelMTU(t *testing.T) {
	wg := member.WireGuard
	for _, c := range []struct {
		by   member.Engine
		via  path.Path
		size int
		want int
	}{
		{wg, at("192.0.2.1:1"), 1500, 1440},
		{wg, at("[2001:db8::1]:1"), 1500, 1408}, // 1,420, and no packet is filled up beyond it
		{wg, at("192.0.2.1:1"), 1380, 1312},
		{wg, at("192.0.2.1:1"), 1280, 1216},
		{wg, at("192.0.2.1:1"), 0, 0},
		{wg, path.Path{Relay: "h"}, 1500, 0},
		{wg, path.Path{}, 1500, 0},
		{member.IPsec, at("192.0.2.1:1"), 1500, 1438}, // 1,500 with 28 of IP and UDP, 32 of ESP and 2 of its trailer
		{member.IPsec, at("[2001:db8::1]:1"), 1500, 1418},
		{member.IPsec, at("192.0.2.1:1"), 1280, 1218},
		{member.IPsec, at("192.0.2.1:1"), 0, 0},
	} {
		if got := tunnelMTU(c.by, c.via, c.size); got != c.want {
			t.Errorf("%v, %d: %d, not %d", c.via, c.size, got, c.want)
		}
	}
}

func TestRanges(t *testing.T) {
	p := func(s string) netip.Prefix { return netip.MustParsePrefix(s) }
	r := newRanges([]Peer{{Ranges: []netip.Prefix{p("10.1.0.0/16"), p("fd00::7/128")}}, {Ranges: []netip.Prefix{p("10.2.3.0/24"), p("fd00:1::/64")}}})
	for a, want := range map[string]bool{
		"10.1.255.255": true, "10.2.3.4": true, "10.2.4.4": false, "10.0.0.1": false,
		"fd00::7": true, "fd00::8": false, "fd00:1::9": true, "fd00:1::9%eth0": true, "a01::": false,
	} {
		if got := r.contain(netip.MustParseAddr(a)); got != want {
			t.Errorf("%s: %v", a, got)
		}
	}
	if (ranges{}).contain(netip.MustParseAddr("10.1.1.1")) {
		t.Error("nothing contains it")
	}
}

func TestWindow(t *testing.T) {
	var w window
	now := time.Now()
	for i := range 120 {
		if got, want := w.take(now, peeringProbes), i < peeringProbes; got != want {
			t.Fatalf("%d: %v", i, got)
		}
	}
	if w.take(now.Add(999*time.Millisecond), peeringProbes) || !w.take(now.Add(time.Second), peeringProbes) {
		t.Error("a second has another length")
	}
}

// TestSpeak: the secret of the newest probe counts as long as it is there, else the newest secret.
func TestSpeak(t *testing.T) {
	x := newPeer()
	x.link = &link{of: x, session: &session{}}
	for n := range byte(2) {
		x.link.secrets = append(x.link.secrets, Secret{ID: seal.ClusterID{n + 1}})
		x.link.pairs = append(x.link.pairs, newTestPair(t, n+1))
	}
	for heard, want := range map[byte]int{0: 0, 2: 1, 7: 0} {
		if x.heard = (seal.ClusterID{heard}); x.speak() != x.link.pairs[want] {
			t.Errorf("after a probe under %d it is not pair %d", heard, want)
		}
	}
}

// TestDueHeap: the earliest is on top, whatever is planned anew or taken out.
func TestDueHeap(t *testing.T) {
	var h dueHeap
	began := time.Now()
	all := make([]*peer, 50)
	for i := range all {
		all[i] = &peer{}
		h.plan(all[i], began.Add(time.Duration(i*7919%50+1)*time.Second))
	}
	h.plan(all[3], began.Add(500*time.Millisecond))
	if h[0] != all[3] {
		t.Error("one that is sooner is not on top")
	}
	h.plan(all[3], time.Time{})
	h.plan(all[3], time.Time{})
	h.plan(all[5], began.Add(time.Hour))
	var last time.Time
	n := 0
	for len(h) > 0 {
		x := h[0]
		if x.due.Before(last) {
			t.Fatal("the order is wrong")
		}
		last = x.due
		h.plan(x, time.Time{})
		n++
	}
	if n != 49 || !last.Equal(began.Add(time.Hour)) {
		t.Errorf("%d came out, the last %v", n, last.Sub(began))
	}
}

// TestLeave: packets and pings of the path in use leave from where answers came in.
func TestLeave(t *testing.T) {
	x := newPeer()
	w := at("192.0.2.1:1")
	if x.leave(w).IsValid() || x.leave(path.Path{Relay: "h"}).IsValid() {
		t.Error("there is nothing to leave from")
	}
	one, other := netip.MustParseAddr("198.51.100.1"), netip.MustParseAddr("198.51.100.2")
	l := x.localOf(w)
	l.answered, l.heard = one, other
	seen := map[netip.Addr]int{}
	for range 9 {
		seen[x.leave(w)]++
	}
	if seen[one] != 3 || seen[other] != 3 || seen[netip.Addr{}] != 3 {
		t.Errorf("a path that is not in use: %v", seen)
	}
	now := time.Now()
	x.path.Learn(now, path.Facts{Candidates: []path.Candidate{{Addr: w.Addr}}, Probes: true})
	sends, _ := x.path.Next(now)
	if len(sends) != 1 || !x.path.Pong(now, w, sends[0].Ping) || x.path.Path() != w {
		t.Fatalf("%v", sends)
	}
	for range 5 {
		if x.leave(w) != one {
			t.Error("the path in use leaves from elsewhere")
		}
	}
	for i := range 2 * peeringLocals {
		x.localOf(path.Path{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 1)})
	}
	if len(x.locals) > peeringLocals || x.leave(w) != one {
		t.Errorf("%d are remembered, and the one in use leaves from %v", len(x.locals), x.leave(w))
	}
}
