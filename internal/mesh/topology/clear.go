// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"net/netip"

	"github.com/tombolo-io/tombolo/internal/base/plan"
)

// answersChain lets answers through, and what is said about them; forward, input and
// leaving ask it.
const answersChain = "answers"

// The names of chains that look at what comes in, and at what meets the mesh in clear.
const (
	arrivingChain = "arriving"
	leavingChain  = "leaving"
)

// Their priorities: before connections are followed (-200) and destinations translated,
// and after sources are.
const (
	beforeConnections = -310
	afterSNAT         = 150
)

// icmp are the protocols of errors, by family.
func icmp(f plan.Family) string {
	if f == plan.IPv4 {
		return "1"
	}
	return "58"
}

// arriving drops what comes by the link for what this node neither is nor announces. It
// looks at the address to which a peer has sent, before that is translated: a service that
// is announced leads to wherever it leads, and nothing else that this node translates or
// has as an address of its own is reached. Connections are not followed yet, so a packet
// of none does not slip through either.
//
// And it drops what is said to come from the mesh, or is for this node's own overlay
// address, and has come by another link: no tunnel and no policy has seen it. A peer has
// its overlay address in the mesh only, with bypass too. Pods of this node may reach it.
func (d *draft) arriving() []plan.Line {
	foreign := plan.IfNot(plan.KeyIn, d.o.Link)
	local := plan.IfNot(plan.KeyIn, "lo")
	out := d.passing(d.link(plan.KeyIn))
	for _, f := range families() {
		out = append(out, plan.Line{d.link(plan.KeyIn), plan.NotNamed(f.Dst(), of(setOwn, f.Family)),
			plan.Count(), plan.Do("drop")})
	}
	for _, f := range families() {
		out = append(out, plan.Line{foreign, local, plan.Named(f.Src(), of(setPeers, f.Family)),
			plan.Count(), plan.Do("drop")})
		if a := d.overlay(f.Family); a.IsValid() {
			out = append(out, plan.Line{foreign, local, plan.Within(f.Dst(), netip.PrefixFrom(a, a.BitLen())),
				plan.NotNamed(f.Src(), of(setOwn, f.Family)), plan.Count(), plan.Do("drop")})
		}
	}
	return out
}

// leaving is the last look. What belongs into the mesh leaves by its link only, whatever
// the routes are just then. And it leaves with a source to which peers answer by the mesh:
// a connection that is older than our rules keeps the source that it began with.
func (d *draft) leaving() []plan.Line {
	elsewhere := plan.IfNot(plan.KeyOut, d.o.Link)
	var out []plan.Line
	if d.o.IPsec { // what has left by the link comes here once more, with the outer link, before it is encrypted
		out = append(out, plan.Line{elsewhere, plan.If(plan.KeyIPsec, "out"), plan.Do("accept")})
	}
	for _, f := range families() {
		for _, set := range d.within() {
			line := plan.Line{elsewhere, plan.Named(f.Dst(), of(set, f.Family))}
			// The mark alone says nothing: reports of multicast (IGMP, MLD) have any, for the
			// kernel keeps something else there.
			if set != setPeers {
				line = append(line, d.bits(plan.KeyMark, d.o.Marks.Mesh))
			}
			out = append(out, append(line, plan.Count(), plan.Do("drop")))
		}
	}
	multicast := plan.Within(plan.KeyDst6, netip.MustParsePrefix("ff00::/8"))
	out = append(out, plan.Line{d.link(plan.KeyOut), multicast, plan.Do("accept")}) // the kernel's own, for nobody
	out = append(out, d.passing(d.link(plan.KeyOut))...)
	for _, f := range families() {
		out = append(out, plan.Line{d.link(plan.KeyOut), plan.NotNamed(f.Src(), of(setOwn, f.Family)),
			plan.If(plan.KeyJump, answersChain)})
	}
	return out
}

// answers are what may have a source outside of the mesh: a pod has reached a node's own
// address in clear, and the answer goes to the pod's range, by the mesh. Anything else of
// that source would itself be answered in clear. A packet of no connection that is
// followed is none.
func (d *draft) answers() []plan.Line {
	out := []plan.Line{{plan.If(plan.KeyWay, "reply"), plan.Do("return")}}
	for _, f := range families() {
		out = append(out, plan.Line{plan.If(plan.KeyState, "related"),
			plan.If(plan.KeyProto, icmp(f.Family)), plan.Do("return")})
	}
	return append(out, plan.Line{plan.Count(), plan.Do("drop")})
}

// answered asks whether what came by the link from outside of the mesh is an answer.
func (d *draft) answered() []plan.Line {
	var out []plan.Line
	for _, f := range families() {
		line := plan.Line{d.link(plan.KeyIn), plan.Named(f.Src(), of(setSource, f.Family))}
		for _, set := range d.within() {
			line = append(line, plan.NotNamed(f.Src(), of(set, f.Family)))
		}
		out = append(out, append(line, plan.If(plan.KeyJump, answersChain)))
	}
	return out
}

// within are the sets of sources that are in the mesh.
func (d *draft) within() []string {
	if d.o.Bypass {
		return []string{setRouted, setPeers, setDown}
	}
	return []string{setRouted, setPeers}
}

// overlay is this node's own overlay address of a family.
func (d *draft) overlay(f plan.Family) netip.Addr {
	if f == plan.IPv4 {
		return d.in.Self.Overlay4
	}
	return d.in.Self.Overlay6
}
