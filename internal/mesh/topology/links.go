// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"net/netip"

	"github.com/tombolo-io/tombolo/internal/base/plan"
	"github.com/tombolo-io/tombolo/internal/route/mapping"
)

// Links is what the kernel of a node does for linked clusters, beside routing their ranges to members. The zero value
// is for a node of a cluster without any.
type Links struct {
	// Linked are the ranges of other clusters, as they are known here. What of them no member has is lost.
	Linked []netip.Prefix
	// Direct are those that leave for nodes of other clusters here, and Mapped the own ranges, with what other clusters
	// know them by. Sources and destinations are translated where packets leave and come in.
	Direct []netip.Prefix
	Mapped []mapping.Range
	// Passed are ranges of the own cluster between which and Linked this node passes packets.
	Passed []netip.Prefix
	// Inside are the own cluster's ranges of pods. Between them and Linked sources stay, whatever a network plugin says.
	Inside []netip.Prefix
	// Near are addresses in the mesh of other nodes of the own cluster, Far those of nodes of other clusters. Who passes
	// on what they send gives it its own: the one at the end may have no tunnel with them.
	Near, Far []netip.Prefix
}

// The names of sets for linked clusters, without their family.
const (
	setLinked = "linked"
	setDirect = "direct"
	setPassed = "passed"
	setInside = "inside"
	setNear   = "near"
	setFar    = "far"
)

// The chains for linked clusters. A chain that sets a source ends the search for one (nf_nat_inet_fn), so ours comes
// before those of network plugins, at 100. Translation of ranges keeps no state: it comes before connections are
// followed and after all else that looks at addresses, so everything here sees the cluster's own ones.
const (
	sourceChain   = "linked-source"
	incomingChain = "linked-in"
	outgoingChain = "linked-out"
	refusedChain  = "linked-refused"

	beforeArriving = beforeConnections - 10
	afterLeaving   = afterSNAT + 50
)

// BeforeSourceNAT is the priority of the chain by which sources of linked clusters stay.
const BeforeSourceNAT = 90

// closed closes what no member has.
func (l Links) closed() []Closed {
	if len(l.Linked) == 0 {
		return nil
	}
	return []Closed{{ID: "linked clusters", Node: "linked clusters", Ranges: l.Linked}}
}

func (l Links) sets() (out []plan.Set) {
	if len(l.Linked) == 0 {
		return nil
	}
	for _, s := range []struct {
		name   string
		ranges []netip.Prefix
	}{{setLinked, l.Linked}, {setDirect, l.Direct}, {setPassed, l.Passed}, {setInside, l.Inside},
		{setNear, l.Near}, {setFar, l.Far}} {
		var by [2][]plan.Range
		for _, r := range rangesOf(s.ranges) {
			by[index(plan.FamilyOf(r.From))] = append(by[index(plan.FamilyOf(r.From))], r)
		}
		for _, f := range families() {
			out = append(out, plan.Set{Name: of(s.name, f.Family), Family: f.Family, Ranges: by[index(f.Family)]})
		}
	}
	return out
}

// Kept are the sets of a state with the ranges of other clusters: between these and the pods of the own one sources
// stay.
func Kept(s plan.State) []plan.Set { return named(s, setLinked) }

// Routed are the ranges that a state sends into the mesh, whether a peer has them or they are lost there.
func Routed(s plan.State) (out []plan.Range) {
	for _, set := range named(s, setRouted) {
		out = append(out, set.Ranges...)
	}
	return out
}

// named are the sets of a state with a name, of both families.
func named(s plan.State, name string) (out []plan.Set) {
	for _, t := range s.Tables {
		for _, set := range t.Sets {
			if set.Name == of(name, set.Family) {
				out = append(out, set)
			}
		}
	}
	return out
}

func (d *draft) linkChains() []plan.Chain {
	if len(d.in.Links.Linked) == 0 {
		return nil
	}
	out := []plan.Chain{{Name: sourceChain, Hook: "postrouting", Type: "nat", Priority: BeforeSourceNAT,
		Lines: d.linkedSources()}}
	if len(d.in.Links.Mapped) > 0 {
		in, away, refused := d.translated()
		out = append(out,
			plan.Chain{Name: refusedChain, Hook: "output", Type: "route", Priority: beforeArriving, Lines: refused},
			plan.Chain{Name: incomingChain, Hook: "prerouting", Type: "filter", Priority: beforeArriving, Lines: in},
			plan.Chain{Name: outgoingChain, Hook: "postrouting", Type: "filter", Priority: afterLeaving, Lines: away})
	}
	return out
}

// linkedSources says which source connections with linked clusters have. One to a Service whose endpoint is on another
// node takes this node's: the answer has to come back here, where the Service's address is put in again.
func (d *draft) linkedSources() (out []plan.Line) {
	for _, f := range families() {
		far := plan.Named(f.Src(), of(setFar, f.Family))
		if d.overlay(f.Family).IsValid() {
			out = append(out, plan.Line{far, plan.If(plan.KeyStatus, "dnat"), plan.NotNamed(f.Dst(), of(setOwn, f.Family)),
				plan.Do("masquerade")})
			for _, way := range d.relayed() {
				out = append(out, plan.Line{plan.Named(f.Src(), of(way[0], f.Family)),
					plan.Named(f.Dst(), of(way[1], f.Family)), plan.Do("masquerade")})
			}
		}
		from, inside := plan.Named(f.Src(), of(setLinked, f.Family)), plan.Named(f.Dst(), of(setInside, f.Family))
		out = append(out,
			plan.Line{from, plan.If(plan.KeyStatus, "dnat"), plan.NotNamed(f.Dst(), of(setOwn, f.Family)),
				plan.Do("masquerade")},
			plan.Line{from, inside, plan.Do("keep")},
			plan.Line{far, inside, plan.Do("keep")},
			plan.Line{plan.Named(f.Src(), of(setInside, f.Family)), plan.Named(f.Dst(), of(setLinked, f.Family)),
				plan.Do("keep")})
	}
	return out
}

// translated are the lines of 1:1 translation, for what comes in and what leaves. An ICMP error has the address of who
// says it, and names the packet that it is about as it was there. What the link refuses was translated before: the
// kernel's error is for an address that only other clusters know, and would leave in clear with a piece of the packet.
func (d *draft) translated() (in, away, refused []plan.Line) {
	for _, m := range d.in.Links.Mapped {
		f := plan.FamilyOf(m.There.Addr())
		from, to := plan.Named(f.Src(), of(setDirect, f)), plan.Named(f.Dst(), of(setDirect, f))
		here, there := m.Here.String(), m.There.String()
		in = append(in,
			plan.Line{d.link(plan.KeyIn), from, plan.Within(f.Dst(), m.Here), plan.If(plan.KeyMoveDst, there)},
			plan.Line{d.link(plan.KeyIn), from, plan.Within(f.AboutSrc(), m.Here), plan.If(plan.KeyMoveAboutSrc, there)})
		away = append(away,
			plan.Line{d.link(plan.KeyOut), to, plan.Within(f.Src(), m.There), plan.If(plan.KeyMoveSrc, here)},
			plan.Line{d.link(plan.KeyOut), to, plan.Within(f.AboutDst(), m.There), plan.If(plan.KeyMoveAboutDst, here)})
		refused = append(refused, plan.Line{plan.Within(f.Dst(), m.Here), plan.Within(f.AboutSrc(), m.Here),
			plan.If(plan.KeyMoveAboutSrc, there), plan.If(plan.KeyMoveDst, there)})
	}
	return in, away, refused
}

// relayed are the sets of nodes which this one, a gateway, lets reach another set under its own address.
func (d *draft) relayed() [][2]string {
	if len(d.in.Links.Passed) == 0 {
		return nil
	}
	return [][2]string{{setNear, setLinked}, {setFar, setPassed}}
}

// answering are lines that let through what answers nodes that reach others under this one's address.
func (d *draft) answering(links ...plan.Term) (out []plan.Line) {
	for _, f := range families() {
		for _, way := range d.relayed() {
			line := append(plan.Line{}, links...)
			out = append(out, append(line, plan.Named(f.Src(), of(way[1], f.Family)), plan.Named(f.Dst(), of(way[0], f.Family)),
				plan.If(plan.KeyState, "established,related"), plan.Do("accept")))
		}
	}
	return out
}

// passing are lines that let through what this node passes on as a gateway: between other clusters and the rest of its
// own, and not from one other cluster to the next; and what their nodes themselves begin.
func (d *draft) passing(links ...plan.Term) (out []plan.Line) {
	if len(d.in.Links.Passed) == 0 {
		return nil
	}
	for _, f := range families() {
		linked, passed := of(setLinked, f.Family), of(setPassed, f.Family)
		ways := [][2]string{{linked, passed}, {passed, linked}}
		for _, way := range d.relayed() {
			ways = append(ways, [2]string{of(way[0], f.Family), of(way[1], f.Family)})
		}
		for _, way := range ways {
			line := append(plan.Line{}, links...)
			out = append(out, append(line, plan.Named(f.Src(), way[0]), plan.Named(f.Dst(), way[1]), plan.Do("accept")))
		}
	}
	return out
}
