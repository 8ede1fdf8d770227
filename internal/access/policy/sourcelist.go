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

// Sources lists who may use a way: for every source the list admits whom Decide allows, if there are no Partials.
// protected is that of the request. The list is sorted, and as short as it can be without losing where an entry comes
// from: what a wider entry covers is left out, and halves of one rule are joined.
func (e *EdgeRules) Sources(w EdgeWay, protected bool) SourceList {
	out := SourceList{Protected: protected || !ofEdge(w.Flow)}
	for i, p := range e.policies {
		if p == nil {
			continue
		}
		out.Protected = out.Protected || p.Protects(w.Cluster, w.Flow)
		for _, r := range p.rules {
			if !r.concerns(w) {
				continue
			}
			share, _ := r.reaches(w)
			list := &out.Allow
			if r.deny {
				list = &out.Deny
			}
			if share == noneOf || share == partOf && !r.deny {
				continue
			}
			for prefix := range r.source.all() {
				*list = append(*list, SourceEntry{Prefix: prefix, Rule: r.name, Group: r.group, Policy: i})
			}
		}
	}
	out.Allow, out.Deny = shortest(out.Allow), shortest(out.Deny)
	return out
}

// shortest sorts entries and leaves out what others cover; of equal ranges the first by rule and policy stays.
func shortest(in []SourceEntry) (out []SourceEntry) {
	slices.SortFunc(in, func(a, b SourceEntry) int {
		return cmp.Or(a.Prefix.Addr().Compare(b.Prefix.Addr()), cmp.Compare(a.Prefix.Bits(), b.Prefix.Bits()),
			strings.Compare(a.Rule, b.Rule), cmp.Compare(a.Policy, b.Policy))
	})
	for _, e := range in { // a wider one with the same start comes first
		if n := len(out); n > 0 && out[n-1].Prefix.Contains(e.Prefix.Addr()) {
			continue
		}
		out = append(out, e)
		for n := len(out); n > 1; n = len(out) {
			a, b := out[n-2], out[n-1]
			wide := netip.PrefixFrom(a.Prefix.Addr(), a.Prefix.Bits()-1)
			if a.Prefix.Bits() == 0 || a.Prefix.Bits() != b.Prefix.Bits() || wide != wide.Masked() ||
				!wide.Contains(b.Prefix.Addr()) {
				break
			}
			if b.Prefix = a.Prefix; a != b {
				break // of another rule
			}
			out[n-2].Prefix, out = wide, out[:n-1]
		}
	}
	return out
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
