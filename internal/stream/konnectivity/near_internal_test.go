// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// rank says how well a tunnel suits a host by a strategy; below 0: not at all.
func rank(x *tunnel, s Strategy, host string) int {
	if !x.who.near.fits(s, host) {
		return -1
	}
	best := 0
	if addr, err := netip.ParseAddr(host); s == ByDestCIDR && err == nil {
		for _, r := range x.who.near.Ranges {
			if r.Contains(addr.Unmap()) {
				best = max(best, r.Bits())
			}
		}
	}
	return best
}

// look chooses by a look at all tunnels, as what is kept of them has to: those that are equally good.
func look(a *Agents, host string, now time.Time) (out []*tunnel) {
	for _, s := range a.Strategies {
		agents, best := map[string]*tunnel{}, [2]int{-1, -1}
		for _, x := range a.tunnels {
			if x.ready.Load() && agents[x.who.agent] == nil {
				if own := standing(a.ids[x.who.agent], s, host, now); own != nil {
					agents[x.who.agent] = own
				}
			}
		}
		for _, x := range agents {
			r := [2]int{1, rank(x, s, host)}
			if x.draining.Load() {
				r[0] = 0
			}
			switch slices.Compare(r[:], best[:]) {
			case 1:
				out, best = []*tunnel{x}, r
			case 0:
				out = append(out, x)
			}
		}
		if len(out) > 0 {
			return out
		}
	}
	return nil
}

// TestNearby has tunnels come, drain and go in any order, and compares each choice with one by a look at all. Agents
// keep their ranges.
func TestNearby(t *testing.T) {
	ranges := []string{"", "&cidr=10.0.0.0/8&cidr=::/0", "&cidr=10.1.0.0/16", "&cidr=10.1.2.0/24&cidr=10.1.2.0/24",
		"&cidr=0.0.0.0/0", "&cidr=::ffff:10.1.2.0/120"}
	places := []string{"", "&host=n1", "&host=n1&host=n2&ipv4=10.1.2.3", "&default-route=true", "&host=n2&host=n2"}
	hosts := []string{"n1", "n2", "n3", "10.1.2.3", "10.9.9.9", "192.0.2.1", "2001:db8::1", "fe80::1%eth0", "::ffff:10.1.2.3", ""}
	for seed, order := range []string{"default", "destHost", "defaultRoute", "destCIDR", "destHost,default",
		"destCIDR,defaultRoute,destHost", "destHost,destCIDR,defaultRoute,default"} {
		strategies, err := ParseStrategies(order)
		if err != nil {
			t.Fatal(err)
		}
		a := NewAgents(AgentsOptions{Strategies: strategies})
		random, now := rand.New(rand.NewPCG(uint64(seed), 1)), time.Unix(1_767_225_600, 0)
		for range 1_000 {
			now = now.Add(time.Duration(random.Int64N(int64(settles))))
			id := random.IntN(8)
			switch n := random.IntN(10); {
			case n < 5 && len(a.tunnels) < 30:
				near := near(t, places[random.IntN(len(places))]+ranges[id%len(ranges)])
				x, err := a.attach(agentIdentity{agent: fmt.Sprint(id), near: near,
					holder: Holder{Name: []string{"shared", "own " + fmt.Sprint(id)}[id%2]}}, nil)
				if err != nil {
					t.Fatal(err)
				}
				if x.since = now; random.IntN(3) == 0 {
					x.session = unusedSession{}
				}
				if random.IntN(8) > 0 {
					a.arrived(x)
				}
			case len(a.tunnels) == 0:
			case n < 7:
				a.leaves(a.tunnels[random.IntN(len(a.tunnels))])
			case n < 8:
				a.gone(a.tunnels[random.IntN(len(a.tunnels))])
			default:
				a.detach(a.tunnels[random.IntN(len(a.tunnels))])
			}
			for _, host := range hosts {
				compare(t, a, host, now)
			}
		}
		for len(a.tunnels) > 0 {
			a.detach(a.tunnels[0])
		}
		if len(a.near.groups) > 0 || a.near.bits != [129]int{} {
			t.Errorf("%s: %d groups stay", order, len(a.near.groups))
		}
	}
}

// compare wants each of those that look finds, once.
func compare(t *testing.T, a *Agents, host string, now time.Time) {
	t.Helper()
	want := look(a, host, now)
	var got []*tunnel
	for n, of := 0, 1; n < of; n++ {
		if x := a.chooseLocked(host, now, func(all int) int { of = all; return n }); x != nil {
			got = append(got, x)
		}
	}
	by := func(x, y *tunnel) int { return slices.Index(a.tunnels, x) - slices.Index(a.tunnels, y) }
	slices.SortFunc(got, by)
	slices.SortFunc(want, by)
	if !slices.Equal(got, want) {
		t.Fatalf("%v for %q: %d agents are chosen among, and not %d", a.Strategies, host, len(got), len(want))
	}
}

// BenchmarkChoose is one choice among so many agents, each on a node of its own.
func BenchmarkChoose(b *testing.B) {
	for _, strategy := range []Strategy{ByDefault, ByDefaultRoute, ByDestHost, ByDestCIDR} {
		for _, agents := range []int{10, 1_000, 10_000} {
			a := NewAgents(AgentsOptions{Strategies: []Strategy{strategy}})
			for i := range agents {
				at := netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 7})
				near, err := ParseIdentifiers(fmt.Sprintf("ipv4=%s&host=node-%d&default-route=true&cidr=%s/24", at, i, at))
				if err != nil {
					b.Fatal(err)
				}
				agentFacts{agent: fmt.Sprint(i), near: near, tunnelFacts: tunnelFacts{settled: true}}.arrive(a, time.Now())
			}
			host := netip.AddrFrom4([4]byte{10, byte(agents / 2 >> 8), byte(agents / 2), 7}).String()
			b.Run(fmt.Sprintf("%s/%d", strategy, agents), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					a.mu.Lock()
					x := a.chooseLocked(host, time.Now(), rand.IntN)
					a.mu.Unlock()
					if x == nil {
						b.Fatal("no agent")
					}
				}
			})
		}
	}
}
