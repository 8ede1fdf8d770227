// SPDX-License-Identifier: Apache-2.0

package istio

import (
	"cmp"
	"net/netip"
	"slices"
)

// SourceList says who may use a way: nobody of Deny, and if it is protected only those of Allow.
type SourceList struct {
	Protected   bool // what Allow lacks is refused
	Allow, Deny []SourceEntry
}

// SourceEntry is a range of a list, with the rule that it comes from.
type SourceEntry struct {
	Prefix              netip.Prefix
	Rule, Group, Source string
}

// prefixes are those of some entries, sorted, without those that another one has.
func prefixes(entries []SourceEntry) []netip.Prefix {
	var all []netip.Prefix
	for _, e := range entries {
		if e.Prefix.IsValid() {
			all = append(all, e.Prefix.Masked())
		}
	}
	slices.SortFunc(all, comparePrefixes)
	var out []netip.Prefix
	for _, p := range all { // a wider one with the same start comes first
		if n := len(out); n == 0 || !out[n-1].Contains(p.Addr()) {
			out = append(out, p)
		}
	}
	return out
}

func comparePrefixes(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}

// texts are prefixes as Istio reads them.
func texts(ps []netip.Prefix) []string {
	out := make([]string, 0, len(ps))
	for _, p := range ps {
		out = append(out, p.String())
	}
	return out
}

// Admits is what a list decides of an address.
func Admits(l SourceList, a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	in := func(entries []SourceEntry) bool {
		return slices.ContainsFunc(entries, func(e SourceEntry) bool { return e.Prefix.Contains(a) })
	}
	return !in(l.Deny) && (!l.Protected || in(l.Allow))
}
