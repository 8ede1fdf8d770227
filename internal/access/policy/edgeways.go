// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/tombolo-io/tombolo/internal/base/plan"
)

// EdgeWay is a way through an edge that rules tell apart from others. The cluster may be a pattern of rules: then it
// stands for the clusters that the pattern matches and no rule names. An empty name is any that no rule names, port 0
// any such port.
type EdgeWay struct {
	Cluster string `json:"cluster"`
	Flow    string `json:"flow"`
	Name    string `json:"name,omitempty"`
	Port    uint16 `json:"port,omitempty"`
}

// String is cluster/flow, and the name and port if there are.
func (w EdgeWay) String() string {
	out := w.Cluster + "/" + w.Flow
	switch {
	case w.Port != 0:
		out += fmt.Sprintf(" %s:%d", cmp.Or(w.Name, "*"), w.Port)
	case w.Name != "":
		out += " " + w.Name
	}
	return out
}

// From is the question whether a source may use the way.
func (w EdgeWay) From(source netip.Addr) Request {
	return Request{Cluster: w.Cluster, Flow: w.Flow, Name: w.Name, Port: w.Port, Source: source}
}

// EdgeRules are the rules of some policies that are about the flows of an edge.
type EdgeRules struct {
	policies []*Policy
	named    map[string][]*rule // by cluster
	wide     []*rule
	clusters map[string]bool
}

// NewEdgeRules collects the rules.
func NewEdgeRules(policies ...*Policy) *EdgeRules {
	e := &EdgeRules{policies: policies, named: map[string][]*rule{}, clusters: map[string]bool{}}
	for _, p := range policies {
		if p == nil {
			continue
		}
		for _, r := range p.rules {
			if r.edge == 0 {
				continue
			}
			texts := []string{"*"}
			if r.cluster != nil {
				texts = r.written.Cluster
			}
			for _, text := range texts {
				e.clusters[text] = true
				if r.named() {
					e.named[text] = append(e.named[text], r)
				}
			}
			if !r.named() {
				e.wide = append(e.wide, r)
			}
		}
	}
	return e
}

// Clusters lists the names and patterns of clusters in the rules, "*" for rules without clusters, and more.
func (e *EdgeRules) Clusters(more ...string) []string {
	all := maps.Clone(e.clusters)
	for _, c := range more {
		all[c] = true
	}
	return slices.Sorted(maps.Keys(all))
}

// about are the rules for one flow of a cluster.
func (e *EdgeRules) about(cluster, flow string) (out []*rule) {
	for _, r := range e.named[cluster] {
		if r.inFlow(flow) {
			out = append(out, r)
		}
	}
	for _, r := range e.wide {
		if r.inFlow(flow) && r.cluster.match(cluster) {
			out = append(out, r)
		}
	}
	return out
}

// Ways lists the ways that rules tell apart in one flow of a cluster, first that of any name and port; none if no rule
// is about it.
func (e *EdgeRules) Ways(cluster, flow string) []EdgeWay {
	rules := e.about(cluster, flow)
	if len(rules) == 0 {
		return nil
	}
	out := []EdgeWay{{Cluster: cluster, Flow: flow}}
	for _, r := range rules {
		for _, text := range r.written.Destination {
			d, err := parseDestination(text)
			if err != nil {
				continue // refused when it was compiled
			}
			w := EdgeWay{Cluster: cluster, Flow: flow, Name: d.name}
			if d.name != "" && d.name[0] == '.' {
				w.Name = "*" + d.name
			}
			for _, p := range append(d.ports, portRange{}) {
				if w.Port = p.first; !slices.Contains(out, w) {
					out = append(out, w)
				}
			}
		}
	}
	return out
}

// Spans divides all addresses, or those within a prefix, into the ranges that the rules tell apart: every source of a
// range gets the same verdict on the same way.
func (e *EdgeRules) Spans(cluster, flow string, within ...netip.Prefix) []plan.Range {
	if len(within) == 0 {
		within = []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)}
	}
	var known []plan.Range
	for _, r := range e.about(cluster, flow) {
		known = append(known, rangesOf(r.source.few)...)
		if r.source.many != nil {
			for p := range r.source.many.All() {
				known = append(known, plan.RangeOf(p))
			}
		}
	}
	var out []plan.Range
	for _, p := range within {
		whole := plan.RangeOf(p)
		starts := []netip.Addr{whole.From}
		for _, r := range known {
			for _, a := range []netip.Addr{r.From, r.To.Next()} {
				if a.IsValid() && whole.Contains(a) {
					starts = append(starts, a)
				}
			}
		}
		slices.SortFunc(starts, netip.Addr.Compare)
		starts = slices.Compact(starts)
		for i, a := range starts {
			last := whole.To
			if i+1 < len(starts) {
				last = starts[i+1].Prev()
			}
			out = append(out, plan.Range{From: a, To: last})
		}
	}
	return out
}

// Guard names the first rule by which a cluster is protected in a flow; empty: none does.
func (e *EdgeRules) Guard(cluster, flow string) string {
	for _, r := range e.about(cluster, flow) {
		if r.cluster != nil {
			return r.name
		}
	}
	return ""
}

// Decide decides about one source on a way. protected is what the tenant says.
func (e *EdgeRules) Decide(w EdgeWay, source netip.Addr, protected bool) Verdict {
	q := w.From(source)
	q.Protected = protected
	return Decide(q, e.policies...)
}

// EdgeChange is a change of verdict for some sources of a way.
type EdgeChange struct {
	EdgeWay
	Before, After Verdict
	Sources       []plan.Range
}

// EdgeChanges lists which sources get another verdict on which way, by clusters and flows; clusters are looked at
// beside those in rules, and protected says which of them are so by their tenant.
func EdgeChanges(before, after []*Policy, clusters []string, protected func(string) bool) (out []EdgeChange) {
	all, old, new := NewEdgeRules(slices.Concat(before, after)...), NewEdgeRules(before...), NewEdgeRules(after...)
	type kind struct {
		before, after string
		allow         bool
	}
	for _, cluster := range all.Clusters(clusters...) {
		for _, flow := range EdgeFlows() {
			var usual map[plan.Range]kind // the changes on the way of any name and port
			for i, w := range all.Ways(cluster, flow) {
				at, seen := map[kind]int{}, map[plan.Range]kind{}
				for _, s := range all.Spans(cluster, flow) {
					c := EdgeChange{EdgeWay: w, Sources: []plan.Range{s}}
					c.Before = old.Decide(w, s.From, protected(cluster))
					c.After = new.Decide(w, s.From, protected(cluster))
					if c.Before.Allow == c.After.Allow {
						continue
					}
					k := kind{c.Before.Rule, c.After.Rule, c.After.Allow}
					if seen[s] = k; usual[s] == k && i > 0 {
						continue
					}
					if n, known := at[k]; known {
						out[n].Sources = append(out[n].Sources, s)
						continue
					}
					at[k] = len(out)
					out = append(out, c)
				}
				if i == 0 {
					usual = seen
				}
			}
		}
	}
	for i := range out {
		out[i].Sources = plan.Join(out[i].Sources)
	}
	return out
}
