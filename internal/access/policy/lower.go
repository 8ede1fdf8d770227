// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/plan"
)

// Party is a peer as a source of packets: a caller and the addresses that only it has.
type Party struct {
	Caller string // SPIFFE URI of its certificate
	Ranges []netip.Prefix
}

// name is the last part of the identity: within a cluster it identifies the node.
func (p Party) name() string { return p.Caller[strings.LastIndexByte(p.Caller, '/')+1:] }

// CallerAt is the caller of the party with an address, empty if there is none.
func CallerAt(parties []Party, a netip.Addr) string {
	for _, p := range parties {
		if slices.ContainsFunc(p.Ranges, func(r netip.Prefix) bool { return r.Contains(a) }) {
			return p.Caller
		}
	}
	return ""
}

// Lowered is a policy as lines of a chain, with their sets. The enforcer must drop what no line
// accepts.
type Lowered struct {
	Sets  []plan.Set
	Lines []plan.Line
}

// transports are the protocols with ports: TCP, UDP, SCTP.
func transports() []string { return []string{"6", "17", "132"} }

// Lower compiles all rules that apply to a cluster to lines with the meaning that Decide gives
// them, where the source of a packet is its caller only if a party has it: deny lines, then allow
// lines, first those that name special addresses, then a drop of these, then the others. An entry
// without ports covers every protocol. IPv6 addresses that embed an IPv4 address are dropped. An
// unknown cluster (empty) matches the clusters of every deny rule and of no allow rule.
func Lower(cluster string, parties []Party, policies ...*Policy) (Lowered, []Problem) {
	return (&lowerer{parties: parties}).lower(cluster, policies)
}

// LowerAny returns the problems that Lower could have for any parties: rules whose callers match
// no party now may match one later.
func LowerAny(cluster string, policies ...*Policy) []Problem {
	_, problems := (&lowerer{anybody: true}).lower(cluster, policies)
	return problems
}

func (l *lowerer) lower(cluster string, policies []*Policy) (Lowered, []Problem) {
	var problems []Problem
	for _, p := range policies {
		if p == nil {
			continue
		}
		problems = append(problems, p.BetweenPeers(cluster)...)
		l.collect(p, cluster)
	}
	for _, r := range l.rules {
		if r.deny {
			l.rule(r, nil)
		}
	}
	for _, s := range specials {
		for _, r := range l.rules {
			if !r.deny {
				l.rule(r, &s)
			}
		}
		l.drop(s.within)
	}
	for _, p := range []netip.Prefix{embedders.nat64, embedders.nat64Local, embedders.translated, embedders.compatible,
		embedders.sixToFour, embedders.teredo} {
		l.drop(p)
	}
	for _, r := range l.rules {
		if !r.deny {
			l.rule(r, nil)
		}
	}
	l.close()
	if n := len(l.out.Lines); n > limit.PolicyLines {
		problems = append(problems, Problem{Path: "rules",
			Message: fmt.Sprintf("they are %d rules of nftables, at most %d are possible: name lists instead of single ports", n,
				limit.PolicyLines)})
	}
	if len(problems) > 0 {
		return Lowered{}, problems
	}
	return l.out, nil
}

// BetweenPeers returns a problem for each rule that has no meaning between peers.
func (p *Policy) BetweenPeers(cluster string) []Problem {
	var out []Problem
	named := p.named(cluster)
	for i, r := range p.rules {
		if !r.cluster.match(cluster) {
			continue
		}
		refuse := func(field, why string) {
			out = append(out, Problem{Index: i, Path: fmt.Sprintf("rules[%d].%s", i, field), Message: why})
		}
		if r.uid != nil {
			refuse("uids", "packets between peers have no user")
		}
		if r.egress != nil {
			refuse("egress", "packets between peers have no egress selection")
		}
		if r.namesFlows() {
			refuse("flows", "packets between peers are not dials of a hub")
		}
		if named[r] {
			field := "allow"
			if r.deny {
				field = "deny"
			}
			refuse(field, "packets between peers carry no names: write ranges")
		}
	}
	return out
}

// named returns the rules with a name among their destinations.
func (p *Policy) named(cluster string) map[*rule]bool {
	out := map[*rule]bool{}
	for _, s := range []*set{p.shared, p.cluster[cluster]} {
		if s == nil {
			continue
		}
		for _, entries := range s.names {
			for _, e := range entries {
				out[e.rule] = true
			}
		}
	}
	return out
}

// lowerer compiles rules to lines.
type lowerer struct {
	parties []Party
	anybody bool // every caller may be present, in both families
	rules   []*lowering
	closed  []plan.Range // not yet in a line
	out     Lowered
}

// lowering is a rule with its destinations.
type lowering struct {
	*rule
	number int
	any    []ports
	to     []portsTo
}

// portsTo are ranges that entries open on the same ports.
type portsTo struct {
	ports  ports
	ranges []netip.Prefix
}

// collect finds the destinations of the rules that apply to a cluster.
func (l *lowerer) collect(p *Policy, cluster string) {
	known := map[*rule]*lowering{}
	for _, r := range p.rules {
		if r.meant(cluster) && !(r.deny && r.caller.ofSockets()) {
			known[r] = &lowering{rule: r, number: len(l.rules)}
			l.rules = append(l.rules, known[r])
		}
	}
	sets := []*set{p.shared}
	for _, name := range slices.Sorted(maps.Keys(p.cluster)) {
		if name == cluster || cluster == "" {
			sets = append(sets, p.cluster[name])
		}
	}
	for _, s := range sets {
		for _, e := range s.any {
			if r := known[e.rule]; r != nil {
				r.any = append(r.any, e.ports)
			}
		}
		for prefix, g := range s.ranges.AllSorted() {
			for _, e := range s.groups[g] {
				if r := known[e.rule]; r != nil {
					r.add(e.ports, prefix)
				}
			}
		}
	}
}

// meant reports whether a rule may apply to peers of a cluster. BetweenPeers refuses those that
// have no meaning there.
func (r *rule) meant(cluster string) bool {
	return r.cluster.match(cluster) || cluster == "" && r.deny && r.uid == nil && r.egress == nil && !r.namesFlows()
}

func (r *lowering) add(ps ports, prefix netip.Prefix) {
	at := slices.IndexFunc(r.to, func(t portsTo) bool { return slices.Equal(t.ports, ps) })
	if at < 0 {
		at = len(r.to)
		r.to = append(r.to, portsTo{ports: ps})
	}
	r.to[at].ranges = append(r.to[at].ranges, prefix)
}

// drop drops packets to a range before all later lines; consecutive ranges share a set.
func (l *lowerer) drop(p netip.Prefix) { l.closed = append(l.closed, plan.RangeOf(p)) }

func (l *lowerer) close() {
	for _, f := range []plan.Family{plan.IPv4, plan.IPv6} {
		if ranges := ofFamily(l.closed, f); len(ranges) > 0 {
			name := fmt.Sprintf("x%d_%d", len(l.out.Sets), f)
			l.set(name, f, ranges)
			l.out.Lines = append(l.out.Lines, plan.Line{plan.Named(f.Dst(), name), plan.Count(), plan.Do("drop")})
		}
	}
	l.closed = nil
}

// rule adds the lines of a rule: all, or those for its ranges within a class of special
// addresses.
func (l *lowerer) rule(r *lowering, within *special) {
	sources := l.sources(r)
	for _, f := range []plan.Family{plan.IPv4, plan.IPv6} {
		if !sources.in(f) {
			continue
		}
		for i, t := range r.to {
			ranges := ofFamily(rangesWithin(t.ranges, within), f)
			if len(ranges) == 0 {
				continue
			}
			name := fmt.Sprintf("d%d_%d_%d", r.number, i, f)
			if within != nil {
				name = fmt.Sprintf("d%d_%d_%s_%d", r.number, i, "x"+strconv.Itoa(slices.Index(specials[:], *within)), f)
			}
			l.set(name, f, ranges)
			l.lines(r, l.from(r, f, sources), plan.Line{plan.Named(f.Dst(), name)}, t.ports)
		}
		if within != nil {
			continue
		}
		for _, ps := range r.any {
			l.lines(r, l.from(r, f, sources), plan.Line{plan.If(plan.KeyFamily, strconv.Itoa(int(f)))}, ps)
		}
	}
}

// from is the condition on the source.
func (l *lowerer) from(r *lowering, f plan.Family, from origins) plan.Line {
	if from.any {
		return nil
	}
	name := fmt.Sprintf("s%d_%d", r.number, f)
	l.set(name, f, ofFamily(from.ranges, f))
	if from.but {
		return plan.Line{plan.NotNamed(f.Src(), name)}
	}
	return plan.Line{plan.Named(f.Src(), name)}
}

func (l *lowerer) lines(r *lowering, from, to plan.Line, ps ports) {
	verdict := plan.Line{plan.Do("accept")}
	if r.deny {
		verdict = plan.Line{plan.Count(), plan.Do("drop")}
	}
	l.close()
	start := slices.Concat(from, to)
	if len(ps) == 0 {
		l.out.Lines = append(l.out.Lines, slices.Concat(start, verdict))
		return
	}
	for _, proto := range transports() {
		for _, p := range ps {
			port := strconv.Itoa(int(p.first))
			if p.last != p.first {
				port += "-" + strconv.Itoa(int(p.last))
			}
			l.out.Lines = append(l.out.Lines, slices.Concat(start,
				plan.Line{plan.If(plan.KeyProto, proto), plan.If(plan.KeyPort, port)}, verdict))
		}
	}
}

// set adds a set once.
func (l *lowerer) set(name string, f plan.Family, ranges []plan.Range) {
	if !slices.ContainsFunc(l.out.Sets, func(s plan.Set) bool { return s.Name == name }) {
		l.out.Sets = append(l.out.Sets, plan.Set{Name: name, Family: f, Ranges: plan.Join(ranges)})
	}
}

// origins are the sources that a rule matches: any, those in ranges, or those outside them.
type origins struct {
	any, but bool
	ranges   []plan.Range
}

// in reports whether a family may contain such a source.
func (o origins) in(f plan.Family) bool { return o.any || o.but || len(ofFamily(o.ranges, f)) > 0 }

// sources returns the sources that a rule matches. An allow rule with callers matches the parties
// that it names. A deny rule matches every source except those of parties that it does not name: a
// source without a known caller could be any caller's.
func (l *lowerer) sources(r *lowering) origins {
	var written []plan.Range
	if !r.source.any() {
		few := slices.Clone(r.source.few)
		if r.source.many != nil {
			for p := range r.source.many.All() {
				few = append(few, p)
			}
		}
		written = plan.Join(rangesOf(few))
	}
	switch {
	case r.caller == nil && r.source.any():
		return origins{any: true}
	case r.caller == nil:
		return origins{ranges: written}
	case r.deny && r.source.any():
		return origins{but: true, ranges: plan.Join(l.parted(r, false))}
	case r.deny:
		return origins{ranges: plan.Less(written, l.parted(r, false))}
	case r.source.any():
		return origins{ranges: plan.Join(l.parted(r, true))}
	}
	named := l.parted(r, true)
	return origins{ranges: plan.Less(named, plan.Less(named, written))} // the intersection
}

// parted returns the ranges of the parties that a rule's callers name, or of the other parties.
func (l *lowerer) parted(r *lowering, named bool) []plan.Range {
	var out []plan.Range
	if l.anybody {
		if named {
			out = rangesOf([]netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0),
				netip.PrefixFrom(netip.IPv6Unspecified(), 0)})
		}
		return out
	}
	for _, p := range l.parties {
		if (r.caller.match(p.Caller) || r.caller.match(p.name())) == named {
			out = append(out, rangesOf(p.Ranges)...)
		}
	}
	return out
}

func rangesOf(prefixes []netip.Prefix) []plan.Range {
	out := make([]plan.Range, 0, len(prefixes))
	for _, p := range prefixes {
		out = append(out, plan.RangeOf(p))
	}
	return out
}

func ofFamily(ranges []plan.Range, f plan.Family) []plan.Range {
	return slices.DeleteFunc(slices.Clone(ranges), func(r plan.Range) bool { return plan.FamilyOf(r.From) != f })
}

// rangesWithin returns the ranges entirely within a class of special addresses; without a class all.
func rangesWithin(prefixes []netip.Prefix, within *special) []plan.Range {
	if within == nil {
		return rangesOf(prefixes)
	}
	return rangesOf(slices.DeleteFunc(slices.Clone(prefixes), func(p netip.Prefix) bool {
		return p.Bits() < within.within.Bits() || !within.within.Contains(p.Addr())
	}))
}
