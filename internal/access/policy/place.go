// SPDX-License-Identifier: Apache-2.0

package policy

import "slices"

// sets returns the sets of a rule: one for each cluster that it names, else the shared one.
func (c *compiler) sets(r *rule) []*set {
	if !r.named() {
		return []*set{c.p.shared}
	}
	out := make([]*set, 0, len(r.cluster))
	for _, p := range r.cluster {
		s := c.p.cluster[p.head]
		if s == nil {
			s = newSet()
			c.p.cluster[p.head] = s
		}
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// combination is a range's group with one more entry.
type combination struct {
	with group
	rule *rule
	at   *portRange // identity of the entry's ports, which the ranges of a list share
	n    int
}

// insert adds a rule to a set under a destination.
func (c *compiler) insert(s *set, r *rule, d destination) {
	e := entry{r, d.ports}
	switch {
	case d.any:
		s.any = append(s.any, e)
	case d.name != "":
		s.names[d.name] = append(s.names[d.name], e)
	default:
		if n := len(s.byRanges); n == 0 || s.byRanges[n-1].rule != r || !slices.Equal(s.byRanges[n-1].ports, d.ports) {
			s.byRanges = append(s.byRanges, e)
		}
		s.ranges.Modify(d.prefix, func(g group, there bool) (group, bool) { return c.with(s, g, e), false })
	}
}

// with returns the group of g's entries and e. The ranges of a list share one.
func (c *compiler) with(s *set, g group, e entry) group {
	key := combination{with: g, rule: e.rule, n: len(e.ports)}
	if len(e.ports) > 0 {
		key.at = &e.ports[0]
	}
	known := c.combined[s]
	if known == nil {
		known = map[combination]group{}
		c.combined[s] = known
	}
	if to, ok := known[key]; ok {
		return to
	}
	if slices.ContainsFunc(s.groups[g], func(o entry) bool { return o.rule == e.rule && slices.Equal(o.ports, e.ports) }) {
		return g // the same range twice
	}
	to := group(len(s.groups))
	before, next := s.groups[g], combination{with: g}
	if _, taken := known[next]; taken { // only the first successor of g may extend g's array
		before = slices.Clip(before)
	}
	s.groups = append(s.groups, append(before, e))
	known[key], known[next] = to, to
	return to
}
