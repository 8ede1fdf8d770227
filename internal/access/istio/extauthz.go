// SPDX-License-Identifier: Apache-2.0

package istio

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/access/policy"
)

// The objects of ext_authz.
const (
	extAuthzName = "tombolo-ext-authz"
	DataPolicies = "tombolo-ext-authz-policies"
	DataTenants  = "tombolo-ext-authz-tenants"
)

// askedOutside writes the AuthorizationPolicy by which Envoy asks, and the data for the answers. The policy changes
// when a cluster gets its first list or loses its last, not with what lists say; in a complete workload not at all.
func (p *planner) askedOutside() {
	var rules []AuthzRule
	to := p.connectPorts()
	connect := p.w.forConnect() == ExtAuthz && to != nil
	var like []string
	by := fmt.Sprintf("%s %s/%s", KindAuthorizationPolicy, p.w.Namespace, extAuthzName)
	for _, c := range p.f.Clusters {
		if !c.atConnect() {
			continue
		}
		like = append(like, destinationsLike(c)...)
		if connect {
			for _, port := range p.w.ConnectPorts {
				p.connectCovered(c.Name, port, by)
			}
		}
	}
	switch {
	case connect && p.w.Complete:
		rules = append(rules, AuthzRule{To: to})
	case connect && len(like) > 0:
		for _, h := range connectHeaders() {
			rules = append(rules, AuthzRule{To: to, When: []AuthzWhen{{Key: "request.headers[" + h + "]", Values: like}}})
		}
	}
	if p.w.forChains() == ExtAuthz {
		rules = append(rules, p.askedByName(by)...)
	}
	p.data()
	if len(rules) == 0 {
		return
	}
	if p.w.Provider == "" {
		p.problems = append(p.problems, Problem{
			What: "ext_authz is asked through a provider of the mesh's configuration: name it"})
	}
	out := p.authorizationPolicy(extAuthzName, "", "CUSTOM", rules)
	out.Spec.Provider = &Provider{p.w.Provider}
	p.out.AuthorizationPolicies = append(p.out.AuthorizationPolicies, out)
}

// destinationsLike match every value of a header that names a cluster.
func destinationsLike(c Cluster) (out []string) {
	for _, ns := range c.namespaces() {
		out = append(out, "*."+ns+".svc.cluster.local", ns+"--kube-apiserver-socket")
	}
	slices.Sort(out)
	return out
}

// askedByName are the rules for chains that are found by a server name.
func (p *planner) askedByName(by string) []AuthzRule {
	var names []string
	var rules []AuthzRule
	ask := func(when AuthzWhen) {
		if len(when.NotValues) == 0 {
			names = append(names, when.Values...)
		} else {
			rules = append(rules, AuthzRule{When: []AuthzWhen{when}})
		}
	}
	for _, c := range p.f.Clusters {
		if !c.listed() {
			continue
		}
		for _, chain := range p.chains {
			if chain.Connect {
				continue
			}
			for _, r := range p.listed(c, chain) {
				conditions, why := p.conditions(c, chain, r)
				switch {
				case why != "":
				case chain.http():
					why = "ext_authz tells requests apart by their destination header, not by their host"
				case len(conditions.When) == 0:
					why = "the chain has no server name, by which ext_authz finds the cluster"
				case slices.ContainsFunc(conditions.When[0].Values, noTenant):
					why = "ext_authz knows hosts as *.name and *-name, and none that begin with * otherwise"
				}
				if why != "" {
					p.uncovered(c, chain, []Reach{r}, why)
					continue
				}
				ask(conditions.When[0])
				p.covered(c, chain, []Reach{r}, by)
			}
		}
	}
	for _, c := range p.f.Clusters {
		awaited := p.awaited(c)
		for _, way := range slices.Sorted(maps.Keys(awaited)) {
			ask(p.named(c, way, 0, awaited[way]))
		}
	}
	if len(names) > 0 {
		rules = append(rules, AuthzRule{When: []AuthzWhen{{Key: "connection.sni", Values: lower(names)}}})
	}
	return rules
}

// data writes the policies and tenants that ext_authz reads. All clusters are tenants: who asks for an unknown one is
// refused.
func (p *planner) data() {
	var policies, tenants []entry
	for _, c := range p.f.Clusters {
		if rules := p.rules(c); len(rules) > 0 {
			doc := text(v1alpha1.AccessPolicy{TypeMeta: v1alpha1.TypeMeta{APIVersion: v1alpha1.Version,
				Kind: v1alpha1.KindAccessPolicy}, AccessContent: v1alpha1.AccessContent{Rules: rules}})
			policies = append(policies, entry{c.Name, len(doc) + len(c.Name) + 16 + strings.Count(doc, `"`), doc})
		}
		if ways := p.ways(c); len(ways) > 0 {
			doc := text(v1alpha1.EdgeTenant{TypeMeta: v1alpha1.TypeMeta{APIVersion: v1alpha1.Version,
				Kind: v1alpha1.KindEdgeTenant}, Metadata: v1alpha1.ObjectName{Name: c.Name},
				Spec: v1alpha1.EdgeTenantSpec{Ways: ways}})
			tenants = append(tenants, entry{c.Name, len(doc) + len(c.Name) + 16 + strings.Count(doc, `"`), doc})
		}
	}
	for name, entries := range map[string][]entry{DataPolicies: policies, DataTenants: tenants} {
		for label, shard := range shards(entries, p.limit) {
			data := map[string]string{}
			for _, e := range shard {
				data[e.cluster+".yaml"] = e.value.(string) + "\n"
			}
			p.out.ConfigMaps = append(p.out.ConfigMaps, ConfigMap{TypeMeta{"v1", KindConfigMap},
				p.meta(p.w.dataNamespace(), name+"-"+label, ""), data})
		}
	}
	slices.SortFunc(p.out.ConfigMaps, func(a, b ConfigMap) int {
		return cmp.Compare(a.Metadata.Name, b.Metadata.Name)
	})
}

// rules are those of a cluster as a file of the policy has them.
func (p *planner) rules(c Cluster) (out []v1alpha1.AccessRule) {
	names := map[string]int{}
	add := func(r v1alpha1.AccessRule) {
		r.Name = cmp.Or(r.Name, "list")
		if names[r.Name]++; names[r.Name] > 1 {
			r.Name = fmt.Sprintf("%s-%d", r.Name, names[r.Name])
		}
		out = append(out, r)
	}
	flows, order := map[string][]string{}, []policy.SourceList{}
	lists := map[string]string{}
	for _, w := range c.Ways {
		if !w.Listed() {
			continue
		}
		key := text(w.List)
		if old, again := lists[w.Flow]; again {
			if old != key {
				p.problems = append(p.problems, Problem{Cluster: c.Name, Flow: w.Flow,
					What: "its ways have different lists: ext_authz keeps one for each flow"})
			}
			continue
		}
		lists[w.Flow] = key
		if flows[key] == nil {
			order = append(order, w.List)
		}
		flows[key] = append(flows[key], w.Flow)
	}
	for _, l := range order {
		rule := v1alpha1.AccessRule{Clusters: []string{c.Name}, Flows: flows[text(l)]}
		for _, g := range byRule(l.Deny) {
			r := rule
			r.Name, r.Group, r.Sources, r.Deny = g.rule, g.group, texts(prefixes(g.entries)), []string{"*"}
			add(r)
		}
		switch allow := byRule(l.Allow); {
		case !l.Protected: // the deny rules protect the way: who is not denied passes
			rule.Name, rule.Sources, rule.Allow = "everybody", texts(whole()), []string{"*"}
			add(rule)
		case len(allow) == 0:
			rule.Name, rule.Sources, rule.Deny = "nobody", texts(whole()), []string{"*"}
			add(rule)
		default:
			for _, g := range allow {
				r := rule
				r.Name, r.Group, r.Sources, r.Allow = g.rule, g.group, texts(prefixes(g.entries)), []string{"*"}
				add(r)
			}
		}
	}
	return out
}

// ruled are the entries of one rule.
type ruled struct {
	rule, group string
	entries     []policy.SourceEntry
}

func byRule(entries []policy.SourceEntry) (out []ruled) {
	for _, e := range entries {
		i := slices.IndexFunc(out, func(r ruled) bool { return r.rule == e.Rule && r.group == e.Group })
		if i < 0 {
			i = len(out)
			out = append(out, ruled{rule: e.Rule, group: e.Group})
		}
		out[i].entries = append(out[i].entries, e)
	}
	slices.SortFunc(out, func(a, b ruled) int {
		return cmp.Or(strings.Compare(a.rule, b.rule), strings.Compare(a.group, b.group))
	})
	return out
}

// ways are those of a cluster as a tenant has them, whoever is asked about them: the data is the same before and after
// a move to or from ext_authz. It carries no traffic: the upstreams are never dialled.
func (p *planner) ways(c Cluster) (out []v1alpha1.EdgeWay) {
	for _, w := range c.Ways {
		if len(w.Destinations) > 0 {
			out = append(out, v1alpha1.EdgeWay{Flow: w.Flow, Destinations: slices.Sorted(slices.Values(w.Destinations)),
				Upstreams: p.upstream(c, "")})
		}
		if names := slices.DeleteFunc(lower(w.Hosts), noTenant); len(names) > 0 {
			out = append(out, v1alpha1.EdgeWay{Flow: w.Flow, Names: names, Upstreams: p.upstream(c, names[0])})
		}
	}
	return out
}

// noTenant reports whether a host cannot be one of a tenant.
func noTenant(host string) bool {
	return strings.HasPrefix(host, "*") && !strings.HasPrefix(host, "*.") && !strings.HasPrefix(host, "*-")
}

func (p *planner) upstream(c Cluster, host string) []string {
	if ns := c.namespaces(); len(ns) > 0 {
		host = "kube-apiserver." + ns[0] + ".svc.cluster.local"
	}
	return []string{net.JoinHostPort(strings.TrimLeft(host, "*.-"), "443")}
}
