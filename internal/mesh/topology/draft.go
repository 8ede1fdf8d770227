// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/tombolo-io/tombolo/internal/base/plan"
)

// mainTable is the kernel's own number (RT_TABLE_MAIN).
const mainTable = 254

// metric is that of our routes; plan.Refusing is that of those that refuse what no link takes.
const metric = 1

// draft gathers what this node sends where.
type draft struct {
	in    Input
	o     Options
	peers Peers
	at    map[string]int // of a peer, by its id

	under                             places
	holes                             []plan.Range    // that this machine reaches without the mesh
	routed, down, known, sources, own [2][]plan.Range // by family
	slow                              map[int]*[2][]plan.Range
}

func index(f plan.Family) int {
	if f == plan.IPv4 {
		return 0
	}
	return 1
}

// families are both, with their headers' bytes.
func families() []struct {
	plan.Family
	header int
} {
	return []struct {
		plan.Family
		header int
	}{{plan.IPv4, 20}, {plan.IPv6, 40}}
}

// local takes what this node itself does not want, and gives the rest to the peers.
func (d *draft) local(pieces []piece) []Problem {
	d.under, d.holes = underlay(d.in), rangesOf(slices.Concat(d.o.Exclude, d.in.Self.Excluded, d.needs()))
	reasons := map[*claim]reason{}
	var problems []Problem
	for _, p := range pieces {
		i := index(plan.FamilyOf(p.From))
		if p.claim.member.ID == d.in.Self.ID {
			d.own[i] = append(d.own[i], p.Range)
			if p.claim.kind == ofRange {
				problems = append(problems, d.contested(p.claim, d.disputed(p.claim, []plan.Range{p.Range}))...)
			}
			continue
		}
		why, seen := reasons[p.claim]
		if !seen {
			why = d.refuses(p.claim)
			reasons[p.claim] = why
			if p.claim.kind > ofClosed {
				problems = append(problems, d.told(p.claim, why.text)...)
			}
		}
		if why.text != "" && why.open {
			continue
		}
		problems = append(problems, d.share(p, i, why)...)
	}
	d.answer()
	return problems
}

// share gives a piece to its peer, but for what members dispute: that is closed.
func (d *draft) share(p piece, family int, why reason) []Problem {
	c, parts := p.claim, []plan.Range{p.Range}
	if c.kind != ofOverlay {
		parts = plan.Less(parts, d.holes)
	}
	if why.text != "" {
		parts = plan.Less(parts, rangesOf(d.in.Local.Networks))
	}
	disputed := d.disputed(c, parts)
	for _, at := range disputed {
		one := []plan.Range{{From: at.addr, To: at.addr}}
		parts = plan.Less(parts, one)
		if !at.reached {
			d.routed[family] = append(d.routed[family], one...)
		}
	}
	if c.kind == ofClosed || why.text != "" {
		d.routed[family] = append(d.routed[family], parts...) // into the link, where nobody has it
	} else if len(parts) > 0 {
		d.give(c, family, parts)
	}
	return d.contested(c, disputed)
}

// told are what is shown of a claim: why it is refused, and what is left out of it because
// this node needs it outside of the mesh.
func (d *draft) told(c *claim, why string) (out []Problem) {
	refused := Problem{Kind: Refused, Member: c.member.ID, Node: c.member.Node, Range: c.prefix, Why: why}
	if why != "" {
		return []Problem{refused}
	}
	for _, s := range d.services() {
		if a := s.Addr; c.kind == ofRange && c.prefix.Contains(a) && !d.ours(a, c.prefix) {
			refused.Range = netip.PrefixFrom(a, a.BitLen())
			refused.Why = fmt.Sprintf("%s of this node is there, and is reached without the mesh; the rest of %s is routed",
				s.What, c.prefix)
			out = append(out, refused)
		}
	}
	return out
}

// services are those that this machine reaches without the mesh, whoever has a range around
// them.
func (d *draft) services() []Service {
	var out []Service
	add := func(a netip.Addr, what string) {
		if a = a.Unmap().WithZone(""); a.IsValid() && !slices.ContainsFunc(out, func(s Service) bool { return s.Addr == a }) {
			out = append(out, Service{a, what})
		}
	}
	for _, s := range d.in.Local.Services {
		add(s.Addr, s.What)
	}
	for _, a := range d.in.Local.Resolvers {
		add(a, "a resolver")
	}
	return out
}

// needs are their addresses.
func (d *draft) needs() []netip.Prefix {
	var out []netip.Prefix
	for _, s := range d.services() {
		out = append(out, netip.PrefixFrom(s.Addr, s.Addr.BitLen()))
	}
	return out
}

func (d *draft) give(c *claim, family int, parts []plan.Range) {
	peer := &d.peers[d.at[c.member.ID]]
	for _, r := range parts {
		peer.Allowed = append(peer.Allowed, r.Prefixes()...)
	}
	overlay := c.kind == ofOverlay
	switch {
	case overlay && family == 0:
		peer.Overlay4 = c.prefix.Addr()
	case overlay:
		peer.Overlay6 = c.prefix.Addr()
	}
	switch {
	case overlay:
		d.known[family] = append(d.known[family], parts...)
	case d.o.Bypass && peer.Down && peer.Engine.Same(d.in.Self.Engine): // else nobody has to repair anything
		d.down[family] = append(d.down[family], parts...)
	default:
		d.routed[family] = append(d.routed[family], parts...)
	}
	if peer.MTU > 0 {
		if d.slow[peer.MTU] == nil {
			d.slow[peer.MTU] = &[2][]plan.Range{}
		}
		d.slow[peer.MTU][family] = append(d.slow[peer.MTU][family], parts...)
	}
}

// reason is why this node does not take a claim; no text: it takes it.
type reason struct {
	text string
	open bool // it goes by this machine's own routes, and is not closed
}

// refuses judges a claim. What keeps this machine itself from being cut off stays open, and
// what the operator has not accepted; the rest was somebody's, and is closed.
func (d *draft) refuses(c *claim) reason {
	within := func(p netip.Prefix) bool {
		return p.IsValid() && p.Contains(c.prefix.Addr()) && p.Bits() <= c.prefix.Bits()
	}
	accepted := c.kind == ofOverlay && d.pooled(c.prefix.Addr()) || slices.ContainsFunc(d.o.Accept, within)
	l := d.in.Local
	lists := []struct {
		addrs []netip.Addr
		what  string
		open  bool
	}{{l.Underlay, "an address", true}, {l.Gateways, "a default gateway", true},
		{l.Addresses, "an address", !accepted || c.prefix.IsSingleIP()}}
	if c.kind == ofOverlay { // a range has a hole for it
		for _, s := range d.services() {
			if s.Addr == c.prefix.Addr() {
				return reason{fmt.Sprintf("it is the address of %s of this node", s.What), true}
			}
		}
	}
	for _, s := range lists {
		for _, a := range s.addrs {
			a = a.Unmap().WithZone("")
			if c.prefix.Contains(a) && a != d.in.Self.Overlay4 && a != d.in.Self.Overlay6 && !d.ours(a, c.prefix) {
				return reason{fmt.Sprintf("it covers %s, %s of this machine", a, s.what), s.open}
			}
		}
	}
	if accepted {
		return reason{}
	}
	return reason{"it is outside of mesh.accept", true}
}

// pooled reports whether an address is one of those from which nodes get theirs in the mesh.
func (d *draft) pooled(a netip.Addr) bool {
	return d.o.Overlay6.IsValid() && d.o.Overlay6.Contains(a) || d.o.Overlay4.IsValid() && d.o.Overlay4.Contains(a)
}

// ours reports whether an address of this machine is in a range that it announces, as
// that of a bridge for pods, which counts before the other one.
func (d *draft) ours(a netip.Addr, other netip.Prefix) bool {
	return slices.ContainsFunc(d.in.Self.Ranges,
		func(p netip.Prefix) bool { return p.Contains(a) && p.Bits() > other.Bits() })
}

// state is the whole desired state.
func (d *draft) state() plan.State {
	s := plan.State{
		Links: []plan.Link{{Name: d.o.Link, MTU: d.o.MTU, Up: true}},
		Sysctls: []plan.Sysctl{
			// Where all links are strict, the mark of what came by the link leads the
			// kernel's question for the way back to our table.
			{Link: d.o.Link, Path: "ipv4/conf/" + d.o.Link + "/rp_filter", Value: "0"},
			{Link: d.o.Link, Path: "ipv4/conf/" + d.o.Link + "/src_valid_mark", Value: "1"},
			// Where IPv6 is off for new links.
			{Link: d.o.Link, Path: "ipv6/conf/" + d.o.Link + "/disable_ipv6", Value: "0"},
		},
		Tables: []plan.Table{{Name: d.o.Filter, Sets: d.sets(), Chains: d.chains()}},
	}
	for _, a := range []netip.Addr{d.in.Self.Overlay6, d.in.Self.Overlay4} {
		if a.IsValid() {
			s.Addresses = append(s.Addresses, plan.Address{Link: d.o.Link, Prefix: netip.PrefixFrom(a, a.BitLen())})
		}
	}
	s.Rules = d.rules()
	s.Routes = d.routes()
	return s.Normal()
}

func (d *draft) rules() []plan.Rule {
	m := d.o.Marks
	var out []plan.Rule
	for _, f := range families() {
		out = append(out, plan.Rule{Family: f.Family, Priority: d.o.Rule, Mark: m.Mesh, Mask: m.Mask, Table: d.o.Table})
	}
	// The check of sources (rp_filter) asks for the way back with the packet's mark, and
	// as if it came by the link where it goes, or lo: the second rule answers that it
	// came by the right one. The packet itself meets the first.
	return append(out,
		plan.Rule{Family: plan.IPv4, Priority: d.o.Rule, In: d.o.Link, Mark: m.both(), Mask: m.Mask, Table: mainTable},
		plan.Rule{Family: plan.IPv4, Priority: d.o.Rule + 1, Mark: m.both(), Mask: m.Mask, Table: d.o.Table})
}

func (d *draft) routes() []plan.Route {
	var out []plan.Route
	byLink := func(table int, to netip.Prefix, mtu int) {
		out = append(out, plan.Route{Table: table, To: to, Metric: metric, Link: d.o.Link, MTU: mtu},
			plan.Route{Table: table, To: to, Metric: plan.Refusing(d.o.Table)})
	}
	byLink(d.o.Table, netip.PrefixFrom(netip.IPv4Unspecified(), 0), 0)
	byLink(d.o.Table, netip.PrefixFrom(netip.IPv6Unspecified(), 0), 0)
	wide := []netip.Prefix{d.o.Overlay6, d.o.Overlay4}
	if _, bad := Pool(d.in); bad {
		wide = wide[:1]
	}
	for _, p := range wide {
		if p.IsValid() {
			byLink(mainTable, p, 0)
		}
	}
	for _, peer := range d.peers {
		for _, r := range peer.Allowed {
			overlay := r.IsSingleIP() && (r.Addr() == peer.Overlay4 || r.Addr() == peer.Overlay6)
			inside := slices.ContainsFunc(wide, func(p netip.Prefix) bool { return p.IsValid() && p.Contains(r.Addr()) })
			switch {
			case overlay && !inside:
				byLink(mainTable, r, peer.MTU)
			case overlay && peer.MTU > 0:
				out = append(out, plan.Route{Table: mainTable, To: r, Metric: metric, Link: d.o.Link, MTU: peer.MTU})
			}
			if peer.MTU > 0 {
				out = append(out, plan.Route{Table: d.o.Table, To: r, Metric: metric, Link: d.o.Link, MTU: peer.MTU})
			}
		}
	}
	return out
}
