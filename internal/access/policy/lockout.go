// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"net/netip"
	"slices"
)

// Insider is a range of sources that must get in through an edge, whatever the rules are.
type Insider struct {
	Who     string   // for people
	Cluster string   // empty: every one
	Flows   []string // as far as the rules protect them
	within  netip.Prefix
}

// InsiderAt reads a CIDR or an address.
func InsiderAt(who, cluster, text string, flows ...string) (Insider, error) {
	p, err := parseRange(text)
	if err != nil {
		return Insider{}, err
	}
	return Insider{Who: who + " " + Range(p), Cluster: cluster, Flows: flows, within: p}, nil
}

// Range is an address or a CIDR, as people write it.
func Range(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}

// Lockout is a way by which an insider does not get in, whatever name and port it asks for.
type Lockout struct {
	EdgeWay
	Who    string
	Source netip.Addr // the first that does not
	Rule   string     // that refuses it, or that protects the cluster
	Why    string
}

// Lockouts looks for insiders who are locked out of what rules protect. Clusters are looked at beside those in rules;
// a pattern only if it matches none of them.
func (e *EdgeRules) Lockouts(insiders []Insider, clusters []string) (out []Lockout) {
	clusters = slices.Clone(clusters)
	for _, in := range insiders {
		if in.Cluster != "" {
			clusters = append(clusters, in.Cluster)
		}
	}
	for _, cluster := range e.Clusters(clusters...) {
		if p, err := parsePattern(cluster); err != nil || p.wild && p.among(clusters) {
			continue
		}
		for _, flow := range EdgeFlows() {
			guard := e.Guard(cluster, flow)
			if guard == "" {
				continue
			}
			for _, in := range insiders {
				if in.Cluster != "" && in.Cluster != cluster || !slices.Contains(in.Flows, flow) {
					continue
				}
				if l, locked := e.lockout(cluster, flow, in); locked {
					if l.Rule == "" {
						l.Rule, l.Why = guard, fmt.Sprintf("rule %q protects it, and %s", guard, l.Why)
					}
					out = append(out, l)
				}
			}
		}
	}
	return out
}

func (e *EdgeRules) lockout(cluster, flow string, in Insider) (Lockout, bool) {
	ways := e.Ways(cluster, flow)
	for _, span := range e.Spans(cluster, flow, in.within) {
		if !slices.ContainsFunc(ways, func(w EdgeWay) bool { return e.Decide(w, span.From, true).Allow }) {
			v := e.Decide(ways[0], span.From, true)
			return Lockout{EdgeWay: ways[0], Who: in.Who, Source: span.From, Rule: v.Rule, Why: v.Why()}, true
		}
	}
	return Lockout{}, false
}
