// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// Overlap is a pair of an allow rule and a deny rule that match the same request. That is what a
// deny rule is for, not a mistake.
type Overlap struct {
	Allow, Deny string // names of the rules
	At          string // the first common destination, such as 10.1.0.0/16
}

// Overlaps lists the pairs of an allow and a deny rule that overlap in part, at most a thousand; an
// allow rule that a deny rule covers entirely is a warning of Compile and not listed. A name and a
// range never overlap here: nobody knows what the name resolves to.
func (p *Policy) Overlaps() []Overlap {
	if p == nil || p.shared == nil {
		return nil
	}
	m := meeting{p: p, found: map[[2]*rule]string{}}
	m.among(p.shared, p.shared)
	for _, c := range p.Clusters() {
		s := p.cluster[c]
		m.among(s, s)
		m.among(s, p.shared)
		m.among(p.shared, s)
	}
	out := make([]Overlap, 0, len(m.found))
	for pair, at := range m.found {
		out = append(out, Overlap{pair[0].name, pair[1].name, at})
	}
	slices.SortFunc(out, func(x, y Overlap) int {
		return cmp.Or(strings.Compare(x.Allow, y.Allow), strings.Compare(x.Deny, y.Deny))
	})
	return out
}

// meeting collects overlapping pairs.
type meeting struct {
	p     *Policy
	found map[[2]*rule]string // allow and deny rule, to the destination
}

// among finds the destinations of s that lie within one of t.
func (m *meeting) among(s, t *set) {
	done := map[[2]group]bool{} // ranges of a list share a group, whose pairs are compared once
	for p, g := range s.ranges.AllSorted() {
		for _, h := range t.ranges.Supernets(p) {
			if pair := [2]group{g, h}; !done[pair] {
				done[pair] = true
				m.meet(s.groups[g], t.groups[h], p.String())
			}
		}
	}
	m.meet(s.byRanges, t.any, "*")
	m.meet(s.any, t.any, "*")
	for _, name := range slices.Sorted(maps.Keys(s.names)) {
		at := name
		if strings.HasPrefix(name, ".") {
			at = "*" + name
		}
		for wide := name; wide != ""; wide = parent(wide) {
			m.meet(s.names[name], t.names[wide], at)
		}
		m.meet(s.names[name], t.any, at)
	}
}

func (m *meeting) meet(some, others []entry, at string) {
	for _, e := range some {
		for _, o := range others {
			if len(m.found) >= mostProblems {
				return
			}
			if e.rule.deny == o.rule.deny || !e.ports.meet(o.ports) {
				continue
			}
			pair := [2]*rule{e.rule, o.rule}
			if e.rule.deny {
				pair = [2]*rule{o.rule, e.rule}
			}
			if _, known := m.found[pair]; !known && !m.p.shadowed[pair[0]] && pair[0].meets(pair[1]) {
				m.found[pair] = at
			}
		}
	}
}

// meets reports whether a caller exists that both rules match.
func (r *rule) meets(o *rule) bool {
	return r.cluster.meet(o.cluster) && r.caller.meet(o.caller) && r.egress.meet(o.egress) && r.flow.meet(o.flow) &&
		r.source.meet(o.source) && (r.uid == nil || o.uid == nil ||
		slices.ContainsFunc(r.uid, func(u uint32) bool { return slices.Contains(o.uid, u) }))
}

func (ps patterns) meet(others patterns) bool {
	return ps == nil || others == nil || slices.ContainsFunc(ps, func(p pattern) bool {
		return slices.ContainsFunc(others, p.meets)
	})
}

// meets reports whether some text matches both patterns. For two with a star that is the longer
// head followed by the longer tail.
func (p pattern) meets(o pattern) bool {
	switch {
	case !o.wild:
		return p.matches(o.head)
	case !p.wild:
		return o.matches(p.head)
	}
	return (strings.HasPrefix(p.head, o.head) || strings.HasPrefix(o.head, p.head)) &&
		(strings.HasSuffix(p.tail, o.tail) || strings.HasSuffix(o.tail, p.tail))
}

func (ps ports) meet(others ports) bool {
	return len(ps) == 0 || len(others) == 0 || slices.ContainsFunc(ps, func(p portRange) bool {
		return slices.ContainsFunc(others, func(o portRange) bool { return p.first <= o.last && o.first <= p.last })
	})
}

func (s sources) meet(o sources) bool {
	switch {
	case s.any() || o.any():
		return true
	case s.many != nil && o.many != nil:
		return s.many.Overlaps(o.many)
	case s.many != nil:
		return slices.ContainsFunc(o.few, s.many.OverlapsPrefix)
	case o.many != nil:
		return slices.ContainsFunc(s.few, o.many.OverlapsPrefix)
	}
	return slices.ContainsFunc(s.few, func(p netip.Prefix) bool { return slices.ContainsFunc(o.few, p.Overlaps) })
}
