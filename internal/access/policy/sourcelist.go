// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"iter"
	"net/netip"
	"slices"
	"strings"
)

// SourceList says who may use a way of an edge: nobody of Deny, and if it is protected only those of Allow.
type SourceList struct {
	Protected   bool // what Allow lacks is refused
	Allow, Deny []SourceEntry
}

// SourceEntry is a range of a list, with the rule that it comes from.
type SourceEntry struct {
	Prefix      netip.Prefix
	Rule, Group string
	Policy      int // the place of its policy in the arguments of NewEdgeRules
}

// Admits is what a list decides of an address.
func (l SourceList) Admits(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	in := func(entries []SourceEntry) bool {
		return slices.ContainsFunc(entries, func(e SourceEntry) bool { return e.Prefix.Contains(a) })
	}
	return !in(l.Deny) && (!l.Protected || in(l.Allow))
}

// Sources lists who may use a way by its name and port, which are exact: for every source the list admits whom Decide
// allows. protected is that of the request. Entries are sorted by range, and then by rule.
func (e *EdgeRules) Sources(w EdgeWay, protected bool) SourceList {
	out := SourceList{Protected: protected}
	for i, p := range e.policies {
		if p == nil {
			continue
		}
		out.Protected = out.Protected || p.Protects(w.Cluster, w.Flow)
		for _, r := range p.rules {
			if r.edge == 0 || !r.inFlow(w.Flow) || !r.cluster.match(w.Cluster) || !r.reaches(w.Name, w.Port) {
				continue
			}
			list := &out.Allow
			if r.deny {
				list = &out.Deny
			}
			for prefix := range r.source.all() {
				*list = append(*list, SourceEntry{Prefix: prefix, Rule: r.name, Group: r.group, Policy: i})
			}
		}
	}
	for _, list := range []*[]SourceEntry{&out.Allow, &out.Deny} {
		slices.SortFunc(*list, func(a, b SourceEntry) int {
			return cmp.Or(a.Prefix.Addr().Compare(b.Prefix.Addr()), cmp.Compare(a.Prefix.Bits(), b.Prefix.Bits()),
				strings.Compare(a.Rule, b.Rule), cmp.Compare(a.Policy, b.Policy))
		})
		*list = slices.Compact(*list)
	}
	return out
}

// reaches reports whether one of a rule's destinations is a name and port.
func (r *rule) reaches(name string, port uint16) bool {
	return slices.ContainsFunc(r.written.Destination, func(text string) bool {
		d, err := parseDestination(text)
		if err != nil || !d.ports.match(port) { // err: refused when it was compiled
			return false
		}
		return d.any || name != "" && (d.name == name || strings.HasPrefix(d.name, ".") && strings.HasSuffix(name, d.name))
	})
}

// all are the ranges of sources; any source is two ranges.
func (s sources) all() iter.Seq[netip.Prefix] {
	switch {
	case s.many != nil:
		return s.many.All()
	case s.few != nil:
		return slices.Values(s.few)
	}
	return slices.Values([]netip.Prefix{
		netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0),
	})
}
