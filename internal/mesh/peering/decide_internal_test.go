// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"net/netip"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/discovery/seal"
	"github.com/tombolo-io/tombolo/internal/mesh/path"
)

func at(s string) path.Way { return path.Way{Addr: netip.MustParseAddrPort(s)} }

func TestTunnelMTU(t *testing.T) {
	for _, c := range []struct {
		way  path.Way
		size int
		want int
	}{
		{at("192.0.2.1:1"), 1500, 1440},
		{at("[2001:db8::1]:1"), 1500, 1408}, // 1,420, and no packet is filled up beyond it
		{at("192.0.2.1:1"), 1380, 1312},
		{at("192.0.2.1:1"), 1280, 1216},
		{at("192.0.2.1:1"), 0, 0},
		{path.Way{Relay: "h"}, 1500, 0},
		{path.Way{}, 1500, 0},
	} {
		if got := tunnelMTU(c.way, c.size); got != c.want {
			t.Errorf("%v, %d: %d, not %d", c.way, c.size, got, c.want)
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
		if got, want := w.take(now, limit.PeeringProbes), i < limit.PeeringProbes; got != want {
			t.Fatalf("%d: %v", i, got)
		}
	}
	if w.take(now.Add(999*time.Millisecond), limit.PeeringProbes) || !w.take(now.Add(time.Second), limit.PeeringProbes) {
		t.Error("a second has another length")
	}
}

// TestCarrier: the newest key with which there was a handshake has the ranges, else the newest.
func TestCarrier(t *testing.T) {
	o := &own{key: member.Key{9}}
	newest, previous := member.Key{1}, member.Key{2}
	shaken := func(yes bool) *session {
		if yes {
			return &session{shook: time.Now()}
		}
		return &session{}
	}
	for _, c := range []struct {
		one, other bool
		want       member.Key
	}{{false, false, newest}, {false, true, previous}, {true, true, newest}, {true, false, newest}} {
		x := &peer{Peer: Peer{Keys: []member.Key{newest, previous}}}
		x.links = []*link{{of: x, own: o, key: newest, session: shaken(c.one)}, {of: x, own: o, key: previous, session: shaken(c.other)}}
		if got := x.carrier(o); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// TestSpeak: what was heard last counts as long as it is there, else our oldest and its newest.
func TestSpeak(t *testing.T) {
	old, fresh := &own{key: member.Key{8}}, &own{key: member.Key{9}}
	x := newPeer()
	for _, o := range []*own{old, fresh} {
		for _, k := range []member.Key{{1}, {2}} {
			l := &link{of: x, own: o, key: k, session: &session{}}
			for n := range byte(2) {
				l.secrets = append(l.secrets, Secret{ID: seal.ClusterID{n}})
				l.pairs = append(l.pairs, nil)
			}
			x.links = append(x.links, l)
		}
	}
	for i, l := range x.links { // pairs that differ
		for j := range l.pairs {
			l.pairs[j] = newTestPair(t, byte(10*i+j+1))
		}
	}
	if x.speak() != x.links[0].pairs[0] {
		t.Error("nothing was heard yet")
	}
	x.voice = voice{fresh.key, member.Key{2}, seal.ClusterID{1}}
	if x.speak() != x.links[3].pairs[1] {
		t.Error("what was heard is not used")
	}
	x.voice.secret = seal.ClusterID{7}
	if x.speak() != x.links[0].pairs[0] {
		t.Error("a secret that is gone is used")
	}
}

func TestRotationDue(t *testing.T) {
	began := time.Now()
	r := rotation{began: began, until: began.Add(time.Minute)}
	for _, c := range []struct{ now, want time.Duration }{
		{0, limit.PeeringSettle}, {40 * time.Second, 40*time.Second + limit.PeeringLook}, {2 * time.Minute, time.Minute},
	} {
		if got := r.due(began.Add(c.now)).Sub(began); got != c.want {
			t.Errorf("after %v: %v, not %v", c.now, got, c.want)
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

// TestLeave: packets and pings of the way in use leave from where answers came in.
func TestLeave(t *testing.T) {
	x := newPeer()
	w := at("192.0.2.1:1")
	if x.leave(w).IsValid() || x.leave(path.Way{Relay: "h"}).IsValid() {
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
		t.Errorf("a way that is not in use: %v", seen)
	}
	now := time.Now()
	x.path.Learn(now, path.Facts{Candidates: []path.Candidate{{Addr: w.Addr}}, Probes: true})
	sends, _ := x.path.Next(now)
	if len(sends) != 1 || !x.path.Pong(now, w, sends[0].Ping) || x.path.Way() != w {
		t.Fatalf("%v", sends)
	}
	for range 5 {
		if x.leave(w) != one {
			t.Error("the way in use leaves from elsewhere")
		}
	}
	for i := range 2 * limit.PeeringLocals {
		x.localOf(path.Way{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 1)})
	}
	if len(x.locals) > limit.PeeringLocals || x.leave(w) != one {
		t.Errorf("%d are remembered, and the one in use leaves from %v", len(x.locals), x.leave(w))
	}
}
