// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"maps"
	"slices"
)

// Texts lists the entries of an agent's own list.
func (p *Policy) Texts() []string {
	if p == nil {
		return nil
	}
	return slices.Clone(p.texts)
}

// Rules lists the rules as they were written.
func (p *Policy) Rules() []Rule {
	if p == nil {
		return nil
	}
	out := make([]Rule, len(p.rules))
	for i, r := range p.rules {
		if out[i] = (Rule{Name: r.name, Destination: []string{r.name}}); r.written != nil {
			out[i] = *r.written
		}
	}
	return out
}

// named reports whether a rule lists its clusters, without a star.
func (r *rule) named() bool {
	return len(r.cluster) > 0 && !slices.ContainsFunc(r.cluster, func(p pattern) bool { return p.wild })
}

// Clusters lists the clusters that rules name without a star.
func (p *Policy) Clusters() []string {
	if p == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(p.cluster))
}

// Wide reports whether a rule applies to any cluster, or to clusters by a star.
func (p *Policy) Wide() bool {
	return p != nil && slices.ContainsFunc(p.rules, func(r *rule) bool { return !r.named() })
}

// AnyMatches reports whether a text with at most one * matches one of the names.
func AnyMatches(text string, names []string) bool {
	p, err := parsePattern(text)
	return err == nil && slices.ContainsFunc(names, p.matches)
}

// Unreached names the rules that match none of these clusters.
func (p *Policy) Unreached(known []string) (names []string) {
	if p == nil {
		return nil
	}
	for _, r := range p.rules {
		if !slices.ContainsFunc(known, r.cluster.match) {
			names = append(names, r.name)
		}
	}
	return names
}
