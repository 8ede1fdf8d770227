// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

func near(t *testing.T, text string) Identifiers {
	t.Helper()
	i, err := ParseIdentifiers(text)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func TestChoose(t *testing.T) {
	plain := tunnelFacts{agent: "plain"}
	node := tunnelFacts{agent: "node", near: near(t, "host=node1&ipv4=10.0.0.1&ipv6=fd00::1&cidr=10.1.0.0/16&uid=7")}
	wide := tunnelFacts{agent: "wide", near: near(t, "cidr=10.0.0.0/8&cidr=nonsense&default-route=true")}
	leaving := func(f tunnelFacts) tunnelFacts { f.draining = true; return f }
	kept := func(f tunnelFacts) tunnelFacts { f.settled = true; return f }
	shared := func(f tunnelFacts) tunnelFacts { f.shared = true; return f }
	session := func(f tunnelFacts) tunnelFacts { f.settled, f.native = true, true; return f }
	for _, c := range []struct {
		name  string
		order string
		all   []tunnelFacts
		host  string
		want  []int // any of them; none: no agent
	}{
		{"nobody", "default", nil, "10.0.0.1", nil},
		{"any", "default", []tunnelFacts{plain, node}, "10.0.0.1", []int{0, 1}},
		{"the oldest tunnel of each agent while none is settled", "default", []tunnelFacts{plain, plain, node, node}, "x",
			[]int{0, 2}},
		{"the newest settled one of each agent", "default",
			[]tunnelFacts{kept(plain), kept(node), kept(plain), kept(node), kept(plain), node}, "x", []int{3, 4}},
		{"a settled one before one that may be closed at once", "default", []tunnelFacts{kept(plain), plain}, "x", []int{0}},
		{"the oldest one of agents that share a credential", "default",
			[]tunnelFacts{shared(kept(plain)), shared(kept(plain)), shared(session(plain))}, "x", []int{0}},
		{"and a newer one once that drains", "default",
			[]tunnelFacts{shared(leaving(plain)), shared(kept(plain))}, "x", []int{1}},
		{"the newest session", "default", []tunnelFacts{session(plain), session(plain)}, "x", []int{1}},
		{"a session before a newer plain wire", "default", []tunnelFacts{session(plain), kept(plain)}, "x", []int{0}},
		{"a session after a plain wire", "default", []tunnelFacts{kept(plain), session(plain)}, "x", []int{1}},
		{"a plain wire before a session that drains", "default", []tunnelFacts{plain, leaving(session(plain))}, "x", []int{0}},
		{"the newest that suits the host", "destHost", []tunnelFacts{kept(node), kept(tunnelFacts{agent: "node"})}, "node1",
			[]int{0}},
		{"none that drains", "default", []tunnelFacts{leaving(plain), node}, "x", []int{1}},
		{"a newer tunnel of an agent whose older one drains", "default", []tunnelFacts{leaving(plain), plain}, "x", []int{1}},
		{"one that drains as the last resort", "default", []tunnelFacts{leaving(plain)}, "x", []int{0}},
		{"the host by its address", "destHost", []tunnelFacts{plain, node}, "10.0.0.1", []int{1}},
		{"the host by its IPv6 address", "destHost", []tunnelFacts{plain, node}, "fd00::1", []int{1}},
		{"the host by its name", "destHost", []tunnelFacts{plain, node}, "node1", []int{1}},
		{"no host", "destHost", []tunnelFacts{plain, node}, "10.0.0.2", nil},
		{"the next strategy", "destHost,default", []tunnelFacts{plain}, "10.0.0.2", []int{0}},
		{"one that drains before the next strategy, as the reference", "destHost,default", []tunnelFacts{plain, leaving(node)},
			"node1", []int{1}},
		{"the narrowest range", "destCIDR", []tunnelFacts{wide, node}, "10.1.2.3", []int{1}},
		{"the only range", "destCIDR", []tunnelFacts{wide, node}, "10.2.2.3", []int{0}},
		{"a name is in no range", "destCIDR", []tunnelFacts{wide, node}, "node1", nil},
		{"a wider range before one that drains", "destCIDR", []tunnelFacts{wide, leaving(node)}, "10.1.2.3", []int{0}},
		{"the default route", "destHost,defaultRoute", []tunnelFacts{plain, wide}, "192.0.2.1", []int{1}},
		{"no default route", "defaultRoute", []tunnelFacts{plain}, "192.0.2.1", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			order, err := ParseStrategies(c.order)
			if err != nil {
				t.Fatal(err)
			}
			var got []int
			for n := range max(len(c.want), 1) {
				i, ok := choose(order, c.all, c.host, func(of int) int {
					if of != len(c.want) {
						t.Errorf("%d are equally good, and not %d", of, len(c.want))
					}
					return min(n, of-1)
				})
				if ok {
					got = append(got, i)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%v are chosen, and not %v", got, c.want)
			}
		})
	}
}

// TestAnAgentThatIsBack is dialled through its new tunnel once that is settled, while the old one seems to live.
func TestAnAgentThatIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := NewAgents(AgentsOptions{Strategies: []Strategy{ByDefault}})
		var tunnels []*tunnel
		for range 2 {
			tunnel, err := a.attach(agentIdentity{agent: "a"}, nil)
			if err != nil {
				t.Fatal(err)
			}
			tunnel.ready.Store(true)
			tunnels = append(tunnels, tunnel)
			time.Sleep(settles - 1)
		}
		for _, want := range [][2]int{{1, 0}, {0, 1}} {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() {
				_, err := a.Dial(ctx, wire.Dial{Network: wire.NetworkTCP, Address: "10.0.0.1:1"})
				done <- err
			}()
			synctest.Wait()
			if got := [2]int{tunnels[0].pendingCount(), tunnels[1].pendingCount()}; got != want {
				t.Errorf("the dials under way by the old tunnel and the new one are %v, not %v", got, want)
			}
			cancel()
			if err := <-done; err == nil {
				t.Error("a dial has succeeded")
			}
			time.Sleep(time.Nanosecond)
		}
	})
}

func TestParseStrategies(t *testing.T) {
	for _, bad := range []string{"", ",", "nearest", "default,nearest"} {
		if got, err := ParseStrategies(bad); err == nil {
			t.Errorf("%q is taken: %v", bad, got)
		}
	}
	for _, list := range []string{"destHost,default", "destHost,default,", ",destHost, default,destHost"} {
		if got, err := ParseStrategies(list); err != nil || !slices.Equal(got, []Strategy{ByDestHost, ByDefault}) {
			t.Errorf("%q: %v, %v", list, got, err)
		}
	}
	if _, err := ParseIdentifiers("host=%zz"); err == nil {
		t.Error("identifiers that are not encoded are taken")
	}
}
