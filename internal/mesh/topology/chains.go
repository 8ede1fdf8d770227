// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/tombolo-io/tombolo/internal/base/plan"
)

// The names of sets, without their family.
const (
	setRouted = "routed" // of peers: into the mesh
	setDown   = "down"   // of peers that are down, with bypass: in clear
	setPeers  = "peers"  // overlay addresses of peers
	setSource = "source" // addresses of peers outside of the mesh: good as a source
	setOwn    = "own"    // of this node: good as a source
)

// accessChain has the policy; input and forward ask it.
const accessChain = "access"

// The priorities of our chains. After those that translate destinations (-100), so
// that a service's address is an endpoint's by then; before those that filter.
const (
	afterDNAT   = -50
	atMangle    = -150
	atFilter    = 0
	atSourceNAT = 100
)

// tcpHeaders are TCP's header and 12 bytes of options (timestamps), which count as
// data where a segment size is concerned but not in what it allows.
const tcpHeaders = 20 + 12

func of(name string, f plan.Family) string { return name + strconv.Itoa(int(f)) }

func slowSet(mtu int, f plan.Family) string { return fmt.Sprintf("mtu%d_%d", mtu, f) }

func (d *draft) sets() []plan.Set {
	var out []plan.Set
	add := func(name string, ranges [2][]plan.Range) {
		for _, f := range families() {
			out = append(out, plan.Set{Name: of(name, f.Family), Family: f.Family, Ranges: ranges[index(f.Family)]})
		}
	}
	add(setRouted, d.routed)
	add(setPeers, d.known)
	add(setSource, d.sources)
	add(setOwn, d.own)
	if d.o.Bypass {
		add(setDown, d.down)
	}
	for _, mtu := range slices.Sorted(maps.Keys(d.slow)) {
		for _, f := range families() {
			out = append(out, plan.Set{Name: slowSet(mtu, f.Family), Family: f.Family, Ranges: d.slow[mtu][index(f.Family)]})
		}
	}
	if a := d.in.Access; a != nil {
		out = append(out, a.Sets...)
	}
	return append(out, d.in.Links.sets()...)
}

func (d *draft) chains() []plan.Chain {
	out := []plan.Chain{
		{Name: arrivingChain, Hook: "prerouting", Type: "filter", Priority: beforeConnections, Lines: d.arriving()},
		{Name: "prerouting", Hook: "prerouting", Type: "filter", Priority: afterDNAT, Lines: d.prerouting()},
		{Name: "output", Hook: "output", Type: "route", Priority: afterDNAT, Lines: d.output()},
		{Name: "forward", Hook: "forward", Type: "filter", Priority: atFilter, Lines: d.forward()},
		{Name: "input", Hook: "input", Type: "filter", Priority: atFilter, Lines: d.checked()},
		{Name: "postrouting", Hook: "postrouting", Type: "filter", Priority: atMangle, Lines: d.clamps(plan.KeyOut)},
		{Name: "source", Hook: "postrouting", Type: "nat", Priority: atSourceNAT, Lines: d.masquerade()},
		{Name: leavingChain, Hook: "postrouting", Type: "filter", Priority: afterSNAT, Lines: d.leaving()},
		{Name: answersChain, Lines: d.answers()},
	}
	if d.o.Owner != "" {
		out = append(out, plan.Claim{Owner: d.o.Owner, Table: d.o.Table, Link: d.o.Link}.Chain())
	}
	if a := d.in.Access; a != nil {
		out = append(out, plan.Chain{Name: accessChain, Lines: access(a)})
	}
	return append(out, d.linkChains()...)
}

// access asks the policy about each packet of a connection that a peer began, so that a change
// of the policy ends what it forbids. What answers this side is let in, and ICMP about either.
func access(a *Access) []plan.Line {
	out := []plan.Line{
		{plan.If(plan.KeyState, "established"), plan.If(plan.KeyWay, "reply"), plan.Do("accept")},
		{plan.If(plan.KeyState, "related"), plan.Do("accept")},
	}
	return append(append(out, a.Lines...), plan.Line{plan.Count(), plan.Do("drop")})
}

func (d *draft) link(k plan.Key) plan.Term { return plan.If(k, d.o.Link) }

func (d *draft) bits(k plan.Key, value uint32) plan.Term { return plan.Bits(k, value, d.o.Marks.Mask) }

// intoMesh marks what goes to peers, and what came from them.
func (d *draft) prerouting() []plan.Line {
	m := d.o.Marks
	foreign := plan.IfNot(plan.KeyIn, d.o.Link)
	out := []plan.Line{{d.bits(plan.KeyMark, m.Own), plan.Do("accept")}}
	if d.o.Bypass {
		// A connection that came by the mesh goes back by it; one that came in clear
		// from a peer's range goes back in clear.
		out = append(out, plan.Line{d.link(plan.KeyIn), d.bits(plan.KeyConn, 0), d.bits(plan.KeySetConn, m.Mesh)})
		for _, f := range families() {
			for _, set := range []string{setRouted, setDown} {
				out = append(out, plan.Line{foreign, plan.Named(f.Src(), of(set, f.Family)), d.bits(plan.KeyConn, 0),
					plan.If(plan.KeyState, "new"), d.bits(plan.KeySetConn, m.Own)})
			}
		}
		out = append(out, plan.Line{foreign, d.bits(plan.KeyConn, m.Own), plan.Do("accept")})
		out = append(out, d.bypassed(foreign)...)
	}
	out = append(out, d.marked()...)
	return append(out, plan.Line{d.link(plan.KeyIn), d.bits(plan.KeySetMark, m.both()), plan.Do("accept")})
}

func (d *draft) output() []plan.Line {
	m := d.o.Marks
	out := []plan.Line{
		{d.bits(plan.KeyMark, m.Own), plan.Do("accept")},
		{plan.If(plan.KeyOut, "lo"), plan.Do("accept")},
	}
	if d.o.Bypass {
		out = append(out, plan.Line{d.bits(plan.KeyConn, m.Own), plan.Do("accept")})
		out = append(out, d.bypassed()...)
	}
	return append(out, d.marked()...)
}

// bypassed keeps connections to ranges of peers that are down where they began: in
// the mesh, where they wait, or in clear.
func (d *draft) bypassed(also ...plan.Term) []plan.Line {
	m := d.o.Marks
	var out []plan.Line
	for _, f := range families() {
		down := append(slices.Clone(also), plan.Named(f.Dst(), of(setDown, f.Family)))
		out = append(out,
			append(slices.Clone(down), d.bits(plan.KeyConn, m.Mesh), d.bits(plan.KeySetMark, m.Mesh), plan.Do("accept")),
			append(slices.Clone(down), d.bits(plan.KeyConn, 0), d.bits(plan.KeySetConn, m.Own)))
	}
	return out
}

func (d *draft) marked() []plan.Line {
	var out []plan.Line
	for _, f := range families() {
		line := plan.Line{plan.Named(f.Dst(), of(setRouted, f.Family))}
		if d.o.Bypass {
			out = append(out, append(slices.Clone(line), d.bits(plan.KeyConn, 0), d.bits(plan.KeySetConn, d.o.Marks.Mesh)))
		}
		out = append(out, append(line, d.bits(plan.KeySetMark, d.o.Marks.Mesh), plan.Do("accept")))
	}
	return out
}

// forward lets peers reach what this node announces: it is no router to elsewhere,
// nor back into the mesh, but for what a service that it announces sent there (arriving has
// looked at the service's address).
func (d *draft) forward() []plan.Line {
	out := append(d.clamps(plan.KeyIn), d.passing(d.link(plan.KeyIn), d.link(plan.KeyOut))...)
	out = append(out, d.answering(d.link(plan.KeyIn), d.link(plan.KeyOut))...)
	out = append(out, plan.Line{d.link(plan.KeyIn), d.link(plan.KeyOut), plan.IfNot(plan.KeyStatus, "dnat"),
		plan.Count(), plan.Do("drop")})
	return append(out, d.checked()...)
}

// checked drops what came by the link to where this node announces nothing, or from where no
// peer is, and asks the policy. It looks at the destination again: where the kernel follows
// source routes (LSRR, SRv6), that is another one than arriving has seen.
func (d *draft) checked() []plan.Line {
	var out []plan.Line
	for _, f := range families() {
		out = append(out, plan.Line{d.link(plan.KeyIn), plan.NotNamed(f.Dst(), of(setOwn, f.Family)),
			plan.IfNot(plan.KeyState, "established,related"), plan.IfNot(plan.KeyStatus, "dnat"),
			plan.Count(), plan.Do("drop")})
	}
	for _, f := range families() {
		line := plan.Line{d.link(plan.KeyIn)}
		for _, set := range append(d.within(), setSource) {
			line = append(line, plan.NotNamed(f.Src(), of(set, f.Family)))
		}
		out = append(out, append(line, plan.Count(), plan.Do("drop")))
	}
	out = append(out, d.answered()...)
	if d.in.Access != nil {
		out = append(out, plan.Line{d.link(plan.KeyIn), plan.If(plan.KeyJump, accessChain)})
	}
	return out
}

// clamps lowers the segment size of connections by the link, which came by it or
// leave by it.
func (d *draft) clamps(way plan.Key) []plan.Line {
	var out []plan.Line
	clamp := func(mtu, header int, terms ...plan.Term) {
		line := append(plan.Line{d.link(way)}, terms...)
		out = append(out, append(line, plan.If(plan.KeySyn, "syn"),
			plan.If(plan.KeyMSS, strconv.Itoa(mtu-header-tcpHeaders))))
	}
	for _, f := range families() {
		clamp(d.o.MTU, f.header, plan.If(plan.KeyFamily, strconv.Itoa(int(f.Family))))
	}
	for _, mtu := range slices.Sorted(maps.Keys(d.slow)) {
		for _, f := range families() {
			side := f.Dst()
			if way == plan.KeyIn {
				side = f.Src()
			}
			clamp(mtu, f.header, plan.Named(side, slowSet(mtu, f.Family)))
		}
	}
	return out
}

// masquerade gives what this machine itself sends a source that peers know: its sockets took theirs before they were
// sent into the mesh. It does so for what is passed on from ranges that the configuration names.
func (d *draft) masquerade() []plan.Line {
	var out []plan.Line
	for _, f := range families() {
		if d.overlay(f.Family).IsValid() {
			out = append(out, plan.Line{d.link(plan.KeyOut), plan.NotNamed(f.Src(), of(setOwn, f.Family)),
				plan.If(plan.KeyOwner, "local"), plan.Do("masquerade")})
		}
	}
	for _, p := range d.o.Masquerade {
		if f := plan.FamilyOf(p.Addr()); d.overlay(f).IsValid() {
			out = append(out, plan.Line{d.link(plan.KeyOut), plan.Within(f.Src(), p), plan.Do("masquerade")})
		}
	}
	return out
}

// Reasons are what Reason may say.
func Reasons() []string {
	return []string{"policy", "transit", "destination", "source", "clear", "other"}
}

// Reason says in a word why a line drops packets, for a metric; empty if it does not.
func Reason(chain string, line plan.Line) string {
	if len(line) == 0 || line[len(line)-1] != plan.Do("drop") {
		return ""
	}
	switch chain {
	case accessChain:
		return "policy"
	case leavingChain, answersChain:
		return "clear" // it or its answer would go so
	case arrivingChain:
		if line[0].Key == plan.KeyIn && !line[0].Not { // by the link
			return "destination"
		}
		return "clear" // it has come so
	}
	for _, t := range line {
		switch t.Key {
		case plan.KeyOut:
			return "transit" // it would go back into the mesh
		case plan.KeyDst4, plan.KeyDst6:
			return "destination" // this node does not announce it
		case plan.KeySrc4, plan.KeySrc6:
			return "source" // no peer has it
		}
	}
	return "other"
}
