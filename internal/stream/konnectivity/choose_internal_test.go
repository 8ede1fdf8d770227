// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
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

// agentFacts are those of a tunnel, whose it is, and what its agent is near to.
type agentFacts struct {
	tunnelFacts
	agent string
	near  Identifiers
}

// arrive makes a tunnel of which these facts are true now.
func (f agentFacts) arrive(a *Agents, now time.Time) *tunnel {
	x := newTunnel(a, agentIdentity{agent: f.agent, near: f.near}, nil)
	a.tunnels, a.ids[f.agent] = append(a.tunnels, x), append(a.ids[f.agent], x)
	x.shared.Store(f.shared)
	if f.native {
		x.session = unusedSession{}
	}
	if x.since = now; f.settled {
		x.since = now.Add(-settles)
	}
	a.arrived(x)
	if f.draining {
		a.leaves(x)
	}
	return x
}

type unusedSession struct{ carrier.Session }

func TestChoose(t *testing.T) {
	plain := agentFacts{agent: "plain"}
	node := agentFacts{agent: "node", near: near(t, "host=node1&ipv4=10.0.0.1&ipv6=fd00::1&cidr=10.1.0.0/16&uid=7")}
	wide := agentFacts{agent: "wide", near: near(t, "cidr=10.0.0.0/8&cidr=nonsense&default-route=true")}
	leaving := func(f agentFacts) agentFacts { f.draining = true; return f }
	kept := func(f agentFacts) agentFacts { f.settled = true; return f }
	shared := func(f agentFacts) agentFacts { f.shared = true; return f }
	session := func(f agentFacts) agentFacts { f.settled, f.native = true, true; return f }
	for _, c := range []struct {
		name  string
		order string
		all   []agentFacts
		host  string
		want  []int // any of them; none: no agent
	}{
		{"nobody", "default", nil, "10.0.0.1", nil},
		{"any", "default", []agentFacts{plain, node}, "10.0.0.1", []int{0, 1}},
		{"the oldest tunnel of each agent while none is settled", "default", []agentFacts{plain, plain, node, node}, "x",
			[]int{0, 2}},
		{"the newest settled one of each agent", "default",
			[]agentFacts{kept(plain), kept(node), kept(plain), kept(node), kept(plain), node}, "x", []int{3, 4}},
		{"a settled one before one that may be closed at once", "default", []agentFacts{kept(plain), plain}, "x", []int{0}},
		{"the oldest one of agents that share a credential", "default",
			[]agentFacts{shared(kept(plain)), shared(kept(plain)), shared(session(plain))}, "x", []int{0}},
		{"and a newer one once that drains", "default",
			[]agentFacts{shared(leaving(plain)), shared(kept(plain))}, "x", []int{1}},
		{"the newest session", "default", []agentFacts{session(plain), session(plain)}, "x", []int{1}},
		{"a session before a newer plain wire", "default", []agentFacts{session(plain), kept(plain)}, "x", []int{0}},
		{"a session after a plain wire", "default", []agentFacts{kept(plain), session(plain)}, "x", []int{1}},
		{"a plain wire before a session that drains", "default", []agentFacts{plain, leaving(session(plain))}, "x", []int{0}},
		{"the newest that suits the host", "destHost", []agentFacts{kept(node), kept(agentFacts{agent: "node"})}, "node1",
			[]int{0}},
		{"none that drains", "default", []agentFacts{leaving(plain), node}, "x", []int{1}},
		{"a newer tunnel of an agent whose older one drains", "default", []agentFacts{leaving(plain), plain}, "x", []int{1}},
		{"one that drains as the last resort", "default", []agentFacts{leaving(plain)}, "x", []int{0}},
		{"the host by its address", "destHost", []agentFacts{plain, node}, "10.0.0.1", []int{1}},
		{"the host by its IPv6 address", "destHost", []agentFacts{plain, node}, "fd00::1", []int{1}},
		{"the host by its name", "destHost", []agentFacts{plain, node}, "node1", []int{1}},
		{"no host", "destHost", []agentFacts{plain, node}, "10.0.0.2", nil},
		{"the next strategy", "destHost,default", []agentFacts{plain}, "10.0.0.2", []int{0}},
		{"one that drains before the next strategy, as the reference", "destHost,default", []agentFacts{plain, leaving(node)},
			"node1", []int{1}},
		{"the narrowest range", "destCIDR", []agentFacts{wide, node}, "10.1.2.3", []int{1}},
		{"the only range", "destCIDR", []agentFacts{wide, node}, "10.2.2.3", []int{0}},
		{"a name is in no range", "destCIDR", []agentFacts{wide, node}, "node1", nil},
		{"a wider range before one that drains", "destCIDR", []agentFacts{wide, leaving(node)}, "10.1.2.3", []int{0}},
		{"the default route", "destHost,defaultRoute", []agentFacts{plain, wide}, "192.0.2.1", []int{1}},
		{"no default route", "defaultRoute", []agentFacts{plain}, "192.0.2.1", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			order, err := ParseStrategies(c.order)
			if err != nil {
				t.Fatal(err)
			}
			now := time.Now()
			a := NewAgents(AgentsOptions{Strategies: order})
			for _, f := range c.all {
				f.arrive(a, now)
			}
			var got []int
			for n := range max(len(c.want), 1) {
				x := a.chooseLocked(c.host, now, func(of int) int {
					if of != len(c.want) {
						t.Errorf("%d are equally good, and not %d", of, len(c.want))
					}
					return min(n, of-1)
				})
				if x != nil {
					got = append(got, slices.Index(a.tunnels, x))
				}
			}
			slices.Sort(got)
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
			a.arrived(tunnel)
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
	many := strings.Repeat("host=n&cidr=10.0.0.0/8&", mostNear/2)
	if i, err := ParseIdentifiers(many); err != nil || len(i.Hosts)+len(i.Ranges) != mostNear {
		t.Errorf("as many identifiers as are kept: %v", err)
	}
	if _, err := ParseIdentifiers(many + "ipv6=::1"); !fault.Has(err, fault.CodeRequest) {
		t.Errorf("one more: %v", err)
	}
}
