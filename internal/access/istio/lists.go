// SPDX-License-Identifier: Apache-2.0

package istio

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/tombolo-io/tombolo/internal/access/policy"
)

// prefixes are those of some entries, sorted, without those that another one has.
func prefixes(entries []policy.SourceEntry) []netip.Prefix {
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
