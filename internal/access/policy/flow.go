// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tombolo-io/tombolo/internal/base/id"
)

// The flows: how a request comes. A rule that names none is about FlowDial and FlowRoute: the streams that a hub opens.
const (
	FlowDial    = "dial"    // a stream that a hub opens for a caller
	FlowRoute   = "route"   // the same for one whose packets are routed: 'tombolo route'
	FlowBack    = "back"    // from an agent to a port of the hub: Name is that of the port, and there is no address
	FlowAPI     = "api"     // to the API server of a cluster, by its name
	FlowVPN     = "vpn"     // from a cluster's network to its VPN server
	FlowProxy   = "proxy"   // from within a cluster to its own API server, through the public front door
	FlowIngress = "ingress" // to what else is published for a cluster
)

// flows are all that exist. A rule for another one would never count, and a deny rule that never
// counts is an open door.
func flows() []string { return append([]string{FlowDial, FlowRoute, FlowBack}, EdgeFlows()...) }

// FlowOf is the flow of a stream that a hub opens for a caller. It follows from the role in the caller's certificate:
// nobody chooses it.
func FlowOf(caller string) string {
	who, err := id.ParseURI(caller)
	switch {
	case err != nil:
	case who.Role == id.RoleRoute:
		return FlowRoute
	case who.Role == id.RoleAgent:
		return FlowBack
	}
	return FlowDial
}

// ofEdge reports whether a flow is one of the edge's.
func ofEdge(flow string) bool {
	return flow == FlowAPI || flow == FlowVPN || flow == FlowProxy || flow == FlowIngress
}

// EdgeFlows are those of the edge, which knows where a caller is and what it asks for, and nothing
// else of it.
func EdgeFlows() []string { return []string{FlowAPI, FlowVPN, FlowProxy, FlowIngress} }

// dials are the flows of a rule that names none.
func dials() patterns { return patterns{{head: FlowDial}, {head: FlowRoute}} }

// namesFlows reports whether a rule was written with flows.
func (r *rule) namesFlows() bool { return r.written != nil && r.written.Flow != nil }

// flowSet is a set of edge flows, a bit for each.
type flowSet uint8

func flowSetOf(ps patterns) (out flowSet) {
	for i, name := range EdgeFlows() { // in the order of has
		if ps != nil && ps.match(name) {
			out |= 1 << i
		}
	}
	return out
}

func (s flowSet) has(flow string) bool {
	switch flow {
	case FlowAPI:
		return s&1 != 0
	case FlowVPN:
		return s&2 != 0
	case FlowProxy:
		return s&4 != 0
	case FlowIngress:
		return s&8 != 0
	}
	return false
}

// inFlow reports whether a rule is about a flow.
func (r *rule) inFlow(flow string) bool {
	switch {
	case ofEdge(flow):
		return r.edge.has(flow)
	case flow == FlowBack:
		return r.back
	}
	return r.flow.match(flow)
}

// backOf reports whether a rule is about FlowBack. An allow rule has to write it in full: a pattern such as * that was
// written before there were ports opens none.
func backOf(w Rule, flow patterns) bool {
	return slices.Contains(w.Flow, FlowBack) || w.Deny && w.Flow != nil && flow.match(FlowBack)
}

// backRule refuses what a rule for ports says of facts that no port and no agent has.
func (c *compiler) backRule(path, at string, r *rule, ds []destination) {
	if r.edge != 0 || r.flow.match(FlowDial) || r.flow.match(FlowRoute) {
		c.add(path+".flows", "%s stands alone: what is allowed or denied are names of ports, not destinations", FlowBack)
	}
	if r.uid != nil {
		c.add(path+".uids", "an agent comes over no unix socket")
	}
	if r.egress != nil {
		c.add(path+".egress", "an agent has no egress selection")
	}
	for _, d := range ds {
		if !d.any && (d.name == "" || strings.Contains(d.name, ".")) || d.ports != nil {
			c.add(at, "a rule for %s names ports of the hub: write \"*\" or a name such as registry", FlowBack)
			return
		}
	}
}

// decideBack is Decide for FlowBack. The rules that match have been found.
func (d *decision) decideBack(v Verdict) Verdict {
	switch {
	case v.rules == 0:
		v.kind = kindNoRules
	case d.deny.rule != nil:
		return v.by(kindDenied, d.deny.rule)
	case d.allow.rule != nil:
		v.Allow = true
		return v.by(kindAllowed, d.allow.rule)
	}
	return v
}

// guards are the clusters and flows that are protected: a rule names both. There, what no rule
// allows is refused; elsewhere an edge refuses only what a rule denies.
type guards struct {
	exact map[string]flowSet
	wild  []guard
}

type guard struct {
	cluster pattern
	flows   flowSet
}

func (g *guards) add(r *rule) {
	flows := r.edge
	if flows == 0 {
		return
	}
	for _, c := range r.cluster {
		if c.wild {
			g.wild = append(g.wild, guard{c, flows})
			continue
		}
		if g.exact == nil {
			g.exact = map[string]flowSet{}
		}
		g.exact[c.head] |= flows
	}
}

// Protects reports whether a rule names both a cluster and one of the edge's flows.
func (p *Policy) Protects(cluster, flow string) bool {
	if p == nil {
		return false
	}
	return p.guards.exact[cluster].has(flow) || slices.ContainsFunc(p.guards.wild, func(g guard) bool {
		return g.flows.has(flow) && g.cluster.matches(cluster)
	})
}

// edgeRule refuses what a rule for the edge says of facts that no edge has: it would match
// everybody or nobody.
func (c *compiler) edgeRule(path, at string, w Rule, ds []destination) {
	for field, set := range map[string]bool{"callers": w.Caller != nil, "uids": w.UID != nil, "egress": w.Egress != nil} {
		if set {
			c.add(path+"."+field, "an edge does not know them: rules for its flows (%s) look at sources",
				strings.Join(EdgeFlows(), ", "))
		}
	}
	if slices.ContainsFunc(ds, func(d destination) bool { return d.prefix.IsValid() }) {
		c.add(at, "an edge decides by the name that is asked for: write \"*\", a name or *.suffix")
	}
}

// decideEdge is Decide for the edge's flows. The rules that match have been found.
func (d *decision) decideEdge(v Verdict, policies []*Policy) Verdict {
	v.flow, v.cluster, v.source = d.q.Flow, d.q.Cluster, d.q.Source.Unmap().WithZone("")
	switch {
	case d.deny.rule != nil:
		return v.by(kindDenied, d.deny.rule)
	case d.allow.rule != nil:
		v.Allow = true
		return v.by(kindAllowed, d.allow.rule)
	case d.q.Protected || !ofEdge(d.q.Flow):
	case !slices.ContainsFunc(policies, func(p *Policy) bool { return p.Protects(d.q.Cluster, d.q.Flow) }):
		v.Allow, v.kind = true, kindUnprotected
	}
	return v
}

func (v Verdict) by(k kind, r *rule) Verdict {
	v.kind, v.Rule, v.Group = k, r.name, r.group
	return v
}

// whyEdge is Why for the edge's flows.
func (v Verdict) whyEdge() string {
	from := "an unknown address"
	if v.source.IsValid() {
		from = v.source.String()
	}
	rule := fmt.Sprintf("rule %q", v.Rule)
	if v.Group != "" {
		rule += fmt.Sprintf(" of group %q", v.Group)
	}
	switch v.kind {
	case kindDenied:
		return fmt.Sprintf("%s is denied for %s/%s by %s", from, v.cluster, v.flow, rule)
	case kindAllowed:
		return fmt.Sprintf("allowed by %s", rule)
	case kindUnprotected:
		return fmt.Sprintf("no rule protects %s/%s", v.cluster, v.flow)
	}
	return fmt.Sprintf("no rule allows %s for %s/%s", from, v.cluster, v.flow)
}
