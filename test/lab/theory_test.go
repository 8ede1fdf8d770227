// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"slices"
	"strings"
	"testing"
)

// TestTheory holds the table that every textbook has, by name.
func TestTheory(t *testing.T) {
	v4, v6, both := []int{4}, []int{6}, []int{4, 6}
	for _, c := range []struct {
		a, b     string
		near     Near
		families []int
		mtu      int
		why      string
	}{
		{"open", "open", Apart, both, 1500, "anybody may come"},
		{"open", "symmetric", Apart, v4, 1500, "A lets B in: anybody"},
		{"firewalled", "symmetric", Apart, nil, 0, "known ports only"},
		{"firewalled", "firewalled", Apart, v4, 1500, "each has written to the other's one port"},
		{"full-cone", "symmetric", Apart, v4, 1500, "A lets B in: anybody"},
		{"restricted", "symmetric", Apart, v4, 1500, "A lets B in: it has written to the address"},
		{"restricted", "restricted", Apart, v4, 1500, "it has written to the address"},
		{"port-restricted", "port-restricted", Apart, v4, 1500, "each has written"},
		{"port-restricted", "symmetric", Apart, nil, 0, "known ports only"},
		{"port-restricted", "restricted", Apart, v4, 1500, "it has written to the address"},
		{"crowded", "port-restricted", Apart, v4, 1500, "each has written"},
		{"symmetric", "symmetric", Apart, nil, 0, "nobody knows where to send"},
		{"cgnat", "cgnat", Apart, v4, 1500, "each has written"},
		{"cgnat", "cgnat-symmetric", Apart, nil, 0, "known ports only"},
		{"cgnat", "cgnat", SameCarrier, nil, 0, "does not turn packets round"},
		{"cgnat", "cgnat", SameCarrierHairpin, v4, 1500, "turns packets round"},
		{"cgnat-symmetric", "cgnat-symmetric", SameCarrierHairpin, nil, 0, "nobody knows"},
		{"udp-blocked", "open", Apart, nil, 0, "UDP is blocked"},
		{"proxy-only", "open", Apart, nil, 0, "UDP is blocked"},
		{"proxy-only", "proxy-only", SameLAN, v4, 1500, "one LAN"},
		{"symmetric", "symmetric", SameLAN, v4, 1500, "one LAN"},
		{"ipv6-only", "open", Apart, v6, 1500, "IPv4: one side has none"},
		{"ipv6-only", "port-restricted", Apart, nil, 0, "IPv6: one side has none"},
		{"ipv6-only", "ipv6-only", Apart, v6, 1500, "IPv4: neither has it"},
		{"ipv6-only", "dual-symmetric", Apart, v6, 1500, "IPv6: B lets A in"},
		{"dual-stack", "dual-stack", Apart, both, 1500, "each has written"},
		{"dual-symmetric", "dual-symmetric", Apart, v6, 1500, "IPv4: both have another port"},
		{"dual-symmetric", "symmetric", Apart, nil, 0, "both have another port"},
		{"black-hole", "open", Apart, v4, 1360, "anybody"},
		{"black-hole", "black-hole", SameLAN, v4, 1500, "one LAN"},
		{"lossy", "lossy", Apart, v4, 1500, "each has written"},
		{"port-mapped", "symmetric", Apart, v4, 1500, "anybody"},
		{"port-mapped", "udp-blocked", Apart, nil, 0, "UDP is blocked"},
	} {
		a, okA := KindOf(c.a)
		b, okB := KindOf(c.b)
		if !okA || !okB {
			t.Fatalf("there is no kind %s or %s", c.a, c.b)
		}
		pair := Pair{a, b, c.near}
		got := pair.Theory()
		if got.Direct != (c.families != nil) || !slices.Equal(got.Families, c.families) || got.MTU != c.mtu || !strings.Contains(got.Why, c.why) {
			t.Errorf("%s: %+v, want families %v, MTU %d, %q", pair, got, c.families, c.mtu, c.why)
		}
	}
}

// TestTheoryDoesNotMindTheOrder: who is A is a matter of names.
func TestTheoryDoesNotMindTheOrder(t *testing.T) {
	direct, relayed := 0, 0
	for _, p := range Pairs() {
		one, two := p.Theory(), Pair{p.B, p.A, p.Near}.Theory()
		if one.Direct != two.Direct || !slices.Equal(one.Families, two.Families) || one.MTU != two.MTU ||
			one.Proxies[0] != two.Proxies[1] || one.Proxies[1] != two.Proxies[0] {
			t.Errorf("%s: %+v one way, %+v the other", p, one, two)
		}
		if one.Direct {
			direct++
		} else {
			relayed++
		}
	}
	if direct == 0 || relayed == 0 {
		t.Errorf("%d direct, %d relayed: the grid shows one of them only", direct, relayed)
	}
}

// TestCovering: the part has every kind, with both outcomes where it has both.
func TestCovering(t *testing.T) {
	type outcome struct {
		kind   string
		direct bool
	}
	count := func(pairs []Pair) (map[outcome]int, map[Near]int) {
		outcomes, near := map[outcome]int{}, map[Near]int{}
		for _, p := range pairs {
			near[p.Near]++
			if p.Near == Apart {
				direct := p.Theory().Direct
				outcomes[outcome{p.A.Name, direct}]++
				outcomes[outcome{p.B.Name, direct}]++
			}
		}
		return outcomes, near
	}
	all, allNear := count(Pairs())
	part, partNear := count(Covering())
	for o := range all {
		if part[o] == 0 {
			t.Errorf("the covering part has no pair of %s with direct=%v", o.kind, o.direct)
		}
	}
	for n := range allNear {
		if partNear[n] == 0 {
			t.Errorf("the covering part has no pair that is %s", n)
		}
	}
	n := len(Kinds())
	if got := allNear[Apart]; got != n*(n+1)/2 {
		t.Errorf("%d pairs apart of %d kinds, want each once", got, n)
	}
}
