// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"
	"strings"
)

// Guard is a rule that names a cluster and one of the edge's flows, and so protects both.
type Guard struct {
	Group, Rule string
	Deny        bool
}

// Guards lists the rules that protect a flow of a cluster, by name.
func (p *Policy) Guards(cluster, flow string) (out []Guard) {
	if !p.Protects(cluster, flow) {
		return nil
	}
	seen := map[*rule]bool{}
	take := func(list []entry) {
		for _, e := range list {
			if r := e.rule; !seen[r] && r.flow.match(flow) && r.cluster != nil && r.cluster.match(cluster) {
				seen[r] = true
				out = append(out, Guard{r.group, r.name, r.deny})
			}
		}
	}
	for _, s := range []*set{p.shared, p.cluster[cluster]} {
		if s == nil {
			continue
		}
		take(s.any)
		for _, list := range s.names {
			take(list)
		}
	}
	slices.SortFunc(out, func(a, b Guard) int { return strings.Compare(a.Rule, b.Rule) })
	return out
}

// Names reports whether a rule for one of the edge's flows names the cluster: itself or a pattern, but not all
// clusters.
func (p *Policy) Names(cluster string) bool {
	if p == nil {
		return false
	}
	return p.guards.exact[cluster] != 0 || slices.ContainsFunc(p.guards.wild, func(g guard) bool {
		return g.cluster.head+g.cluster.tail != "" && g.cluster.matches(cluster)
	})
}
