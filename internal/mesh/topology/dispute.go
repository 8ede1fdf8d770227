// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/base/plan"
)

// Two members may say of one address that it is theirs: one that it lies in its range, the
// other that it is there itself, outside of the mesh. Neither is simply believed. To
// send it to the one would let a member take the addresses of others' machines; to send it
// in clear would let a member open others' ranges. So this address alone is lost, but for a
// node to which the other one has answered from there: that reaches it as it always did.
// The rest of the range is its owner's.

// place is an address outside of the mesh.
type place struct {
	addr    netip.Addr
	member  *member.Facts
	reached bool // this node has a path to the member there
}

type places []place

// underlay are the addresses by which members are reached, sorted. That a member has
// its address in the mesh does not count.
func underlay(in Input) places {
	var out places
	for _, m := range all(&in) {
		at := in.Health[m.ID].At
		var seen []netip.Addr
		for _, a := range outside(m) {
			if a.IsValid() && a != m.Overlay4 && a != m.Overlay6 && !slices.Contains(seen, a) {
				seen = append(seen, a)
				out = append(out, place{a, m, m.ID == in.Self.ID || slices.Contains(at, a)})
			}
		}
	}
	slices.SortFunc(out, func(a, b place) int { // of those at one address the one that is there is first
		return cmp.Or(a.addr.Compare(b.addr), order(b.reached, a.reached), strings.Compare(a.member.ID, b.member.ID))
	})
	return out
}

func order(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// disputed are the places of other members within the parts of a claim, one for an address.
// An address that nodes get from the mesh is nobody's outside of it.
func (d *draft) disputed(c *claim, parts []plan.Range) places {
	if c.kind == ofOverlay && d.pooled(c.prefix.Addr()) {
		return nil
	}
	var out places
	for _, r := range parts {
		i, _ := slices.BinarySearchFunc(d.under, r.From, func(p place, a netip.Addr) int { return p.addr.Compare(a) })
		for ; i < len(d.under) && r.Contains(d.under[i].addr); i++ {
			p := d.under[i]
			known := len(out) > 0 && out[len(out)-1].addr == p.addr
			if !known && p.member.ID != c.member.ID {
				out = append(out, p)
			}
		}
	}
	return out
}

// answer allows the peers their own addresses as sources, where nobody has them: what a
// member answers to a packet that came in clear, from a pod to the node itself, comes by the
// mesh with such a source.
func (d *draft) answer() {
	var taken [2][]plan.Range
	for i := range taken {
		taken[i] = plan.Unite(slices.Concat(d.routed[i], d.known[i], d.down[i], d.own[i]))
	}
	here := slices.Concat(d.in.Local.Addresses, d.in.Local.Resolvers, d.in.Local.Gateways)
	var before netip.Addr
	for _, at := range d.under {
		p := netip.PrefixFrom(at.addr, at.addr.BitLen())
		i := index(plan.FamilyOf(at.addr))
		if at.addr == before || !slices.ContainsFunc(at.member.Addresses,
			func(a netip.Addr) bool { return a.Unmap().WithZone("") == at.addr }) {
			continue
		}
		if k, is := d.at[at.member.ID]; is && Never(p) == "" &&
			!slices.ContainsFunc(here, func(a netip.Addr) bool { return a.Unmap().WithZone("") == at.addr }) {
			if _, has := plan.Find(taken[i], at.addr); !has {
				d.peers[k].Sources = append(d.peers[k].Sources, p)
				d.sources[i] = append(d.sources[i], plan.RangeOf(p))
			}
		} else if at.member.ID != d.in.Self.ID {
			continue
		}
		before = at.addr
	}
}

// contested reports disputed addresses of a claim.
func (d *draft) contested(c *claim, disputed places) []Problem {
	var out []Problem
	for _, at := range disputed[:min(len(disputed), aboutMost)] {
		p := Problem{Kind: Refused, Member: at.member.ID, Node: at.member.Node,
			Range: netip.PrefixFrom(at.addr, at.addr.BitLen()), Other: c.member.ID}
		p.Why = fmt.Sprintf("it says that it is there itself, and it is in %s of %s (%s)", c.prefix,
			c.member.Node, c.member.ID)
		switch {
		case c.member.ID == d.in.Self.ID:
			p.Why += ": others send nothing there"
		case at.reached:
			p.Why += ": this node reaches it there, without the mesh; the rest of the range is routed"
		default:
			p.Why += ": the address is closed, and what is sent there is lost; the rest of the range is as it was"
		}
		out = append(out, p)
	}
	return out
}

// Networks are those of addresses with their lengths, sorted: of links that lead anywhere.
func Networks(of []netip.Prefix) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range of {
		p = netip.PrefixFrom(p.Addr().Unmap().WithZone(""), p.Bits()).Masked()
		if p.IsValid() && !p.IsSingleIP() && Never(p) == "" && !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, netip.Prefix.Compare)
	return out
}
