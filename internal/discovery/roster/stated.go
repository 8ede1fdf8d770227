// SPDX-License-Identifier: Apache-2.0

package roster

import (
	"net/netip"
	"slices"
)

// Statement is what one source says is behind this node.
type Statement struct {
	Source           Source
	Ranges, Excluded []netip.Prefix
}

// stated are the statements about this node of others than itself. What a service still
// has of its own word is no news, and what the older protocol says anybody may have written.
func (g *group) stated() []Statement {
	var out []Statement
	for _, e := range g.entries {
		if e.self || e.dead || e.tier != TierStatic && e.tier != TierKubernetes {
			continue
		}
		for _, s := range e.said {
			one := Statement{s.Source, slices.Clone(s.Facts.Ranges), slices.Clone(s.Facts.Excluded)}
			same := func(o Statement) bool {
				return o.Source == one.Source && slices.Equal(o.Ranges, one.Ranges) && slices.Equal(o.Excluded, one.Excluded)
			}
			if len(one.Ranges)+len(one.Excluded) > 0 && !slices.ContainsFunc(out, same) {
				out = append(out, one)
			}
		}
	}
	return out
}

// Behind is what others route to this node: of what is said of it, that of the highest
// tier; and what it announces itself, to those who have no other source. Where it
// announces nothing, what Kubernetes says counts for all.
func (r *Result) Behind(ranges, excluded []netip.Prefix) (all, out []netip.Prefix) {
	all, out = slices.Clone(ranges), slices.Clone(excluded)
	for _, s := range r.Stated {
		if s.Source.Tier == TierKubernetes && len(ranges) > 0 {
			continue // nobody heeds it
		}
		all, out = append(all, s.Ranges...), append(out, s.Excluded...)
	}
	for _, l := range []*[]netip.Prefix{&all, &out} {
		slices.SortStableFunc(*l, netip.Prefix.Compare)
		*l = slices.Compact(*l)
	}
	return all, out
}
