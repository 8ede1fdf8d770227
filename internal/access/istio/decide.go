// SPDX-License-Identifier: Apache-2.0

package istio

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Question asks who may use a way.
type Question struct {
	Cluster string
	Flow    string
	Source  netip.Addr
}

// Answer is what the written objects decide, for each way of the flow.
type Answer struct {
	Ways []WayAnswer
}

// WayAnswer is the decision on one way: a chain, and the name or the destination that is asked for.
type WayAnswer struct {
	Chain   string
	Asked   string // the server name, the host, or the header with its destination
	Allow   bool
	By      string // the object, filter and policy that decided; empty: none did
	Unknown string // why the decision is not known; Allow is false then
}

// Verdict sums an answer up: same if all ways are known and decide alike.
func (a Answer) Verdict() (allow, same bool) {
	for i, w := range a.Ways {
		if w.Unknown != "" || i > 0 && w.Allow != a.Ways[0].Allow {
			return false, false
		}
	}
	return len(a.Ways) > 0 && a.Ways[0].Allow, true
}

// Decide answers by the objects as they stand, not by the lists. Without a way there is nothing to decide.
func Decide(f Facts, w Workload, q Question) Answer {
	chains, _ := Chains(f, w)
	e := newEffects(f, w)
	source := q.Source.Unmap().WithZone("")
	var out Answer
	for _, c := range f.Clusters {
		if c.Name != q.Cluster {
			continue
		}
		for _, chain := range chains {
			for _, r := range chain.Reaches {
				if r.Cluster != c.Name || r.Flow != q.Flow {
					continue
				}
				for _, s := range shapes(c, chain, r) {
					v := e.view(chain, s)
					allow, by, err := v.allows(source)
					a := WayAnswer{Chain: chain.String(), Asked: s.asked(), Allow: allow && err == nil, By: by}
					if err != nil {
						a.Unknown = err.Error()
					}
					out.Ways = append(out.Ways, a)
				}
			}
		}
	}
	slices.SortStableFunc(out.Ways, func(a, b WayAnswer) int {
		return cmp.Or(strings.Compare(a.Chain, b.Chain), strings.Compare(a.Asked, b.Asked))
	})
	return out
}

// asked says what a shape asks for.
func (s shape) asked() string {
	for _, h := range append(connectHeaders(), ":authority") {
		if v, ok := s.headers[h]; ok {
			return strings.TrimPrefix(h+": "+v, ":authority: ")
		}
	}
	return s.sni
}

// shapes are the connections and requests by which a cluster is reached in a chain, one for each name or destination.
func shapes(c Cluster, chain Chain, r Reach) (out []shape) {
	base := shape{http: chain.http(), port: chain.Port}
	if chain.Connect {
		if r.way < 0 {
			return nil
		}
		for _, d := range c.Ways[r.way].Destinations {
			for _, h := range connectHeaders() {
				s := base
				s.headers = map[string]string{h: d, ":authority": "any"}
				out = append(out, s)
			}
		}
		return out
	}
	names := r.Names
	if len(names) == 0 {
		names = chain.SNI
	}
	if len(names) == 0 && r.way >= 0 {
		names = c.Ways[r.way].Hosts
	}
	if len(names) == 0 {
		names = []string{"*"}
	}
	for _, n := range names {
		s := base
		s.sni = example(n)
		if base.http {
			s.headers = map[string]string{":authority": s.sni}
			if len(chain.SNI) == 0 {
				s.sni = ""
			}
		}
		out = append(out, s)
	}
	return out
}

// view is what decides about one shape in a chain.
type view struct {
	guards []guard
	ask    func(netip.Addr) (bool, string, error)
	starts func(func(netip.Prefix))
}

func (e *effects) view(c Chain, s shape) view {
	v := view{guards: e.guards(c, s)}
	if slices.ContainsFunc(v.guards, func(g guard) bool { return g.custom }) {
		if e.data == nil {
			e.data = readData(e.f.ConfigMaps, e.w.dataNamespace())
		}
		v.ask, v.starts = e.data.about(s)
	}
	return v
}

// name is how an answer names a guard.
func (g guard) name() string {
	if g.filter == "" {
		return g.object
	}
	return g.object + " filter " + g.filter
}

// allows is what all guards together decide of an address: every one has to let it pass.
func (v view) allows(a netip.Addr) (allow bool, by string, err error) {
	allow = true
	for _, g := range v.guards {
		if g.voids {
			return false, g.name(), fmt.Errorf("%s: %w", g.name(), g.err)
		}
	}
	for _, g := range v.guards {
		name := g.name()
		if g.err != nil {
			return false, name, fmt.Errorf("%s: %w", name, g.err)
		}
		ok, policy, err := g.live.allows(a)
		if err != nil {
			return false, name, fmt.Errorf("%s: %w", name, err)
		}
		if policy != "" {
			name += " policy " + policy
		}
		if g.custom && !ok { // the rules say when to ask
			ok, policy, err = v.ask(a)
			if name += ": " + policy; err != nil {
				return false, name, fmt.Errorf("%s: %w", name, err)
			}
			if ok {
				by = name
			}
		} else if ok && !g.live.deny {
			by = name
		}
		if !ok {
			return false, name, nil
		}
	}
	return allow, by, nil
}
