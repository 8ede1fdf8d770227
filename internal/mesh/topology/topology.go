// SPDX-License-Identifier: Apache-2.0

// Package topology decides what the kernel of a node is to look like: which ranges go
// to which peer, and by which links, routes, rules and sets they get there. All nodes
// that know the same members come to the same owner of every address. It knows nothing
// of paths, and changes nothing.
package topology

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/base/plan"
)

// Local is what this machine itself must reach in clear: addresses of its links that
// are not announced, resolvers, default gateways.
type Local struct {
	Addresses, Resolvers, Gateways []netip.Addr
	Underlay                       []netip.Addr   // those of Addresses by which it reaches everything else
	Networks                       []netip.Prefix // of the links of Addresses
	Services                       []Service      // by their addresses, as an operator has written them
}

// Service is what this node needs outside of the mesh: a hub, a discovery service, a STUN
// server, an API server.
type Service struct {
	Addr netip.Addr
	What string
}

// Closed are ranges of a member of which nothing is heard any more, and which has not said
// that it leaves.
type Closed struct {
	ID, Node string
	Ranges   []netip.Prefix
	Excluded []netip.Prefix
}

// Health is what is known of the way to a peer.
type Health struct {
	Down  bool         // nothing comes through
	Idle  bool         // whether something does is not known
	Doubt bool         // its last answer is missing
	Alone bool         // it reaches no other node of its cluster
	MTU   int          // of the tunnel's packets, if less than the link's; 0: not known
	At    []netip.Addr // where the peer has answered, without the mesh and a relay
}

// Access is a policy as lines of a chain; what they do not accept is dropped.
type Access struct {
	Sets  []plan.Set
	Lines []plan.Line
}

// Input is all that a plan depends on.
type Input struct {
	Self    member.Facts
	Members []member.Facts // those without a key take no part; this node may be among them, by its id
	Options Options
	Local   Local
	Health  map[string]Health // by id; not in it: up
	Closed  []Closed          // what of it no member has is lost, not sent in clear
	Access  *Access           // nil: members reach each other in all ranges
	Links   Links
}

// Peer is a member that gets a tunnel, with the ranges that are sent to it and taken from
// it. WireGuard's allowed addresses are Allowed and Sources.
type Peer struct {
	ID, Node           string
	Key                member.Key
	Pin                member.Pin // of its certificate, where it has one
	Engine             member.Engine
	Overlay6, Overlay4 netip.Addr // invalid where another has it
	Allowed            []netip.Prefix
	Sources            []netip.Prefix // its addresses outside of the mesh: answers may come from there
	MTU                int            // of the routes to it; 0: the link's
	Down               bool
}

// Peers are sorted by id. No address is Allowed or a Source of two of them.
type Peers []Peer

// Of finds the peer that an address is allowed to.
func (ps Peers) Of(a netip.Addr) (Peer, bool) {
	for _, p := range ps {
		if slices.ContainsFunc(p.Allowed, func(r netip.Prefix) bool { return r.Contains(a) }) {
			return p, true
		}
	}
	return Peer{}, false
}

// Plan decides. The problems are of members and ranges that do not count, in a
// stable order; the state is right without them.
func Plan(in Input) (plan.State, Peers, []Problem) {
	keys, problems := keyed(&in)
	claims, more := claimed(&in, keys)
	problems = append(problems, more...)
	pieces, more := owned(claims, in.Links.Linked)
	problems = append(problems, more...)

	d := draft{in: in, o: in.Options, at: map[string]int{}, slow: map[int]*[2][]plan.Range{}}
	for _, m := range keys {
		if m.ID == in.Self.ID {
			continue
		}
		h := in.Health[m.ID]
		p := Peer{ID: m.ID, Node: m.Node, Key: m.Key, Pin: m.Pin, Engine: m.Engine, Down: h.Down}
		if h.MTU > 0 && h.MTU < in.Options.MTU {
			p.MTU = max(h.MTU-h.MTU%stepMTU, LeastMTU)
		}
		d.at[p.ID] = len(d.peers)
		d.peers = append(d.peers, p)
	}
	problems = append(problems, d.local(pieces)...)
	if p, bad := Pool(in); bad {
		problems = append(problems, p)
	}
	slices.SortStableFunc(problems, compareProblems)
	return d.state(), d.peers, problems
}

// others are the members without this node, each id once, sorted.
func others(in *Input) []*member.Facts {
	var out []*member.Facts
	for i := range in.Members {
		if in.Members[i].ID != in.Self.ID {
			out = append(out, &in.Members[i])
		}
	}
	slices.SortStableFunc(out, func(a, b *member.Facts) int { return strings.Compare(a.ID, b.ID) })
	return slices.CompactFunc(out, func(a, b *member.Facts) bool { return a.ID == b.ID })
}

// all are this node and the others, sorted by id.
func all(in *Input) []*member.Facts {
	out := append(others(in), &in.Self)
	slices.SortFunc(out, func(a, b *member.Facts) int { return strings.Compare(a.ID, b.ID) })
	return out
}

// keyed are the members that take part, with this node, sorted; of two with one key, the one with the smaller id.
func keyed(in *Input) ([]*member.Facts, []Problem) {
	var out []*member.Facts
	var problems []Problem
	holders := map[member.Key]*member.Facts{}
	for _, m := range all(in) {
		if m.Key.IsZero() {
			continue
		}
		holder, taken := holders[m.Key]
		if m.Key == in.Self.Key && m.ID != in.Self.ID {
			problems = append(problems, selfProblem(m))
		}
		if taken {
			if m.Key != in.Self.Key {
				problems = append(problems, keyProblem(m, holder))
			}
			if m.ID != in.Self.ID {
				continue
			}
			out = slices.DeleteFunc(out, func(o *member.Facts) bool { return o.ID == holder.ID }) // no tunnel to ourselves
		}
		holders[m.Key] = m
		out = append(out, m)
	}
	return out, problems
}

// outside are the addresses at which a member is reached outside the mesh, as far as it says so itself: where others
// say that they saw it must not keep anybody's ranges from being routed.
func outside(m *member.Facts) []netip.Addr {
	out := slices.Clone(m.Addresses)
	for _, e := range m.Endpoints {
		if e.Kind != member.KindObserved {
			out = append(out, e.Addr.Addr())
		}
	}
	for i, a := range out {
		out[i] = a.Unmap().WithZone("")
	}
	return out
}
