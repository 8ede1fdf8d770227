// SPDX-License-Identifier: Apache-2.0

package istio

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// priority of the EnvoyFilters: after all others, so that INSERT_FIRST puts a guard before whatever they insert.
const priority = 1000

// guardPrefix begins the name of every filter that is written here.
const guardPrefix = "tombolo-access-"

// GuardName is the name of the filter that guards a cluster in a chain.
func GuardName(cluster string) string { return guardPrefix + cluster }

// connectGuard is the name of a filter of a CONNECT port.
const connectGuard = "tombolo-access-connect"

// isGuard reports whether a filter is one that is written here.
func isGuard(name string) bool { return strings.HasPrefix(name, guardPrefix) }

func (p *planner) envoyFilter(name, cluster string, patches []ConfigPatch) EnvoyFilter {
	return EnvoyFilter{
		TypeMeta: TypeMeta{APINetworking, KindEnvoyFilter},
		Metadata: p.meta(p.w.Namespace, name, cluster),
		Spec: EnvoyFilterSpec{
			WorkloadSelector: &WorkloadSelector{maps.Clone(p.w.Labels)},
			ConfigPatches:    patches,
			Priority:         priority,
		},
	}
}

func (p *planner) meta(namespace, name, cluster string) Meta {
	labels := map[string]string{LabelManagedBy: ManagedBy}
	if cluster != "" {
		labels[LabelCluster] = cluster
	}
	return Meta{Name: name, Namespace: namespace, Labels: labels}
}

// filterForChains writes the EnvoyFilter of a cluster: one patch for each chain that leads to it.
func (p *planner) filterForChains(c Cluster) {
	type at struct {
		apply string
		port  uint32
		sni   string
	}
	seen := map[at]bool{}
	var patches []ConfigPatch
	name := "tombolo-api-" + c.Name
	for i := range p.chains {
		chain := &p.chains[i]
		if chain.Connect {
			continue
		}
		guarded := p.listed(c, *chain)
		if len(guarded) == 0 {
			continue
		}
		sni, ok := p.single(*chain)
		if !ok {
			p.uncovered(c, *chain, guarded, p.unpatchable(*chain))
			continue
		}
		p.covered(c, *chain, guarded, KindEnvoyFilter+" "+p.w.Namespace+"/"+name)
		apply, guard := p.guard(c, *chain, guarded)
		if seen[at{apply, chain.Port, sni}] {
			continue
		}
		seen[at{apply, chain.Port, sni}] = true
		match := ListenerMatch{PortNumber: chain.Port}
		if sni != "" {
			match.FilterChain = &ChainMatch{SNI: sni}
		}
		patches = append(patches, insertFirst(apply, match, guard))
	}
	awaited := p.awaited(c)
	for i := range c.Ways {
		for _, h := range awaited[i] {
			match := ListenerMatch{FilterChain: &ChainMatch{SNI: h}}
			patches = append(patches, insertFirst("NETWORK_FILTER", match, own(c, i)))
		}
	}
	if len(patches) > 0 {
		p.out.EnvoyFilters = append(p.out.EnvoyFilters, p.envoyFilter(name, c.Name, patches))
	}
}

// awaited are the hosts of the ways with lists that have no chain of their own yet, by way: they are guarded before
// one opens them.
func (p *planner) awaited(c Cluster) map[int][]string {
	out := map[int][]string{}
	for i, w := range c.Ways {
		for _, h := range w.Hosts {
			if w.Listed() && !partOfLabel(h) && !slices.ContainsFunc(p.chains, func(o Chain) bool {
				return o.Kind != Added &&
					(len(o.SNI) == 0 && o.leadsTo(c.Name) && !o.Connect || slices.Contains(o.SNI, h))
			}) {
				out[i] = append(out[i], h)
			}
		}
	}
	return out
}

// partOfLabel reports whether a host begins within a label: no chain has it as its server name.
func partOfLabel(host string) bool {
	return strings.HasPrefix(host, "*") && !strings.HasPrefix(host, "*.")
}

func (c Chain) leadsTo(cluster string) bool {
	return slices.ContainsFunc(c.Reaches, func(r Reach) bool { return r.Cluster == cluster })
}

func insertFirst(apply string, match ListenerMatch, f filter) ConfigPatch {
	return ConfigPatch{
		ApplyTo: apply,
		Match:   PatchMatch{Context: "GATEWAY", Listener: &match},
		Patch:   Patch{Operation: "INSERT_FIRST", Value: f.raw()},
	}
}

// single finds the server name by which a chain is told apart from the others of its port: empty if there is no other.
func (p *planner) single(c Chain) (sni string, ok bool) {
	if c.Kind == Added || c.Kind == Automatic {
		return "", false
	}
	others := map[string]bool{}
	alone := true
	for _, o := range p.chains {
		if o.Port != c.Port || o.Kind == Added || o.Object == c.Object && slices.Equal(o.SNI, c.SNI) {
			continue
		}
		alone = alone && o.Connect && c.Kind == HTTP
		for _, n := range o.SNI {
			others[n] = true
		}
	}
	if len(c.SNI) == 0 {
		return "", alone && c.Port != 0
	}
	for _, n := range c.SNI {
		if !others[n] {
			return n, true
		}
	}
	return c.SNI[0], true
}

// unpatchable says why no EnvoyFilter can put a guard into a chain.
func (p *planner) unpatchable(c Chain) string {
	switch c.Kind {
	case Added:
		return "an EnvoyFilter adds the chain: no other one can patch it; the webhook puts the guard in"
	case Automatic:
		return "AUTO_PASSTHROUGH makes chains for services that are not known here"
	}
	return "the chain has no server name, and others share its port or that is not known: no EnvoyFilter patches it alone"
}

// guard is the filter for a cluster in a chain: of the whole chain if the cluster has it for itself.
func (p *planner) guard(c Cluster, chain Chain, reaches []Reach) (apply string, f filter) {
	f.Name = GuardName(c.Name)
	if len(reaches) == 1 && reaches[0].Names == nil {
		return "NETWORK_FILTER", own(c, reaches[0].way)
	}
	f.TypedConfig = RBAC{Type: typeNetworkRBAC, StatPrefix: GuardName(c.Name), Rules: &Rules{Action: "DENY"}}
	apply = "NETWORK_FILTER"
	if chain.http() {
		apply, f.TypedConfig.Type, f.TypedConfig.StatPrefix = "HTTP_FILTER", typeHTTPRBAC, ""
	}
	f.TypedConfig.Rules.Policies = map[string]RBACPolicy{}
	for _, r := range reaches {
		f.TypedConfig.Rules.Policies[c.label(r.way)] = RBACPolicy{asked(c, chain, r), refused(c.Ways[r.way].List)}
	}
	return apply, f
}

// own is the filter of a chain that leads to one way of one cluster and nowhere else.
func own(c Cluster, way int) filter {
	return filter{GuardName(c.Name), RBAC{
		Type:       typeNetworkRBAC,
		StatPrefix: GuardName(c.Name),
		Rules: &Rules{Action: "ALLOW", Policies: map[string]RBACPolicy{
			c.label(way): {anything(), []Principal{admitted(c.Ways[way].List)}},
		}},
	}}
}

// asked is the permission of a cluster's policy in a chain that it shares: the names by which it is asked for, without
// the narrower ones of other ways.
func asked(c Cluster, chain Chain, r Reach) []Permission {
	var in, out []Permission
	for _, n := range r.Names {
		in = append(in, named(chain, n)...)
		for _, m := range chain.except[n] {
			out = append(out, named(chain, m)...)
		}
		for _, o := range chain.Reaches {
			if o.Cluster == c.Name && o.way == r.way {
				continue
			}
			for _, m := range o.Names {
				if m != n && within(m, n) {
					out = append(out, named(chain, m)...)
				}
			}
		}
	}
	if len(out) == 0 {
		return in
	}
	return []Permission{allOf(oneOf(in...), not(oneOf(out...)))}
}

// named matches who asks for a name: by TLS, or by a request's host, with or without a port.
func named(chain Chain, name string) []Permission {
	name = strings.ToLower(name)
	rest, wild := strings.CutPrefix(name, "*")
	if name == "*" || name == "" {
		return anything()
	}
	if !chain.http() {
		if wild {
			return []Permission{{RequestedServerName: suffix(rest)}}
		}
		return []Permission{{RequestedServerName: exact(name)}}
	}
	if wild {
		port := rest + ":"
		return []Permission{
			header(":authority", &StringMatcher{Suffix: &rest, IgnoreCase: true}),
			header(":authority", &StringMatcher{Contains: &port, IgnoreCase: true}),
		}
	}
	port := name + ":"
	return []Permission{
		header(":authority", &StringMatcher{Exact: &name, IgnoreCase: true}),
		header(":authority", &StringMatcher{Prefix: &port, IgnoreCase: true}),
	}
}

// filtersForConnect writes the EnvoyFilters of the CONNECT ports. They deny, so that each cluster has entries of its
// own and none for all others, and so that a request that names two clusters must be admitted by both.
func (p *planner) filtersForConnect() {
	var entries []entry
	for _, c := range p.f.Clusters {
		if policies := connectPolicies(c); len(policies) > 0 {
			entries = append(entries, entry{c.Name, len(text(policies)), policies})
		}
	}
	for _, port := range p.w.ConnectPorts {
		for label, shard := range shards(entries, p.limit) {
			policies := map[string]RBACPolicy{"repeated-header": repeated()}
			for _, e := range shard {
				maps.Copy(policies, e.value.(map[string]RBACPolicy))
			}
			patch := insertFirst("HTTP_FILTER", ListenerMatch{PortNumber: port.Port}, filter{connectGuard + "-" + label,
				RBAC{Type: typeHTTPRBAC, Rules: &Rules{Action: "DENY", Policies: policies}}})
			name := fmt.Sprintf("tombolo-connect-%d-%s", port.Port, label)
			p.out.EnvoyFilters = append(p.out.EnvoyFilters, p.envoyFilter(name, "", []ConfigPatch{patch}))
			for _, e := range shard {
				p.connectCovered(e.cluster, port, KindEnvoyFilter+" "+p.w.Namespace+"/"+name)
			}
		}
	}
	slices.SortFunc(p.out.EnvoyFilters, func(a, b EnvoyFilter) int {
		return cmp.Compare(a.Metadata.Name, b.Metadata.Name)
	})
}

// connectPolicies are the entries of one cluster for the CONNECT ports.
func connectPolicies(c Cluster) map[string]RBACPolicy {
	out := map[string]RBACPolicy{}
	var all []Permission
	for i, w := range c.Ways {
		var here []Permission
		for _, d := range w.Destinations {
			for _, h := range connectHeaders() {
				here = append(here, header(h, exact(d)))
			}
		}
		all = append(all, here...)
		if len(here) > 0 && w.Listed() {
			out[c.Name+"/"+c.label(i)] = RBACPolicy{here, refused(w.List)}
		}
	}
	if len(out) == 0 {
		return nil
	}
	var like []Permission
	for _, ns := range c.namespaces() {
		for _, h := range connectHeaders() {
			like = append(like, header(h, suffix("."+ns+".svc.cluster.local")),
				header(h, exact(ns+"--kube-apiserver-socket")))
		}
	}
	if len(like) > 0 { // forms of its destinations that are not listed
		out[c.Name+"/unknown"] = RBACPolicy{[]Permission{allOf(oneOf(like...), not(oneOf(all...)))},
			[]Principal{anyone()}}
	}
	return out
}

// refuseRepeated writes the EnvoyFilters that refuse repeated headers where AuthorizationPolicies judge them: these
// compare with the start or the end of a value, and of a repeated header neither has to be that of a destination. No
// edit of a list changes them. Who is asked about all requests refuses what he does not know.
func (p *planner) refuseRepeated() {
	if p.w.forConnect() == ExtAuthz && p.w.Complete || !slices.ContainsFunc(p.f.Clusters, Cluster.atConnect) {
		return
	}
	for _, port := range p.w.ConnectPorts {
		patch := insertFirst("HTTP_FILTER", ListenerMatch{PortNumber: port.Port}, filter{connectGuard + "-repeated",
			RBAC{Type: typeHTTPRBAC, Rules: &Rules{Action: "DENY",
				Policies: map[string]RBACPolicy{"repeated-header": repeated()}}}})
		p.out.EnvoyFilters = append(p.out.EnvoyFilters,
			p.envoyFilter(fmt.Sprintf("tombolo-connect-%d-repeated", port.Port), "", []ConfigPatch{patch}))
	}
}

// repeated matches a header that is there twice: Envoy joins the values before it compares, and routes by the first.
func repeated() RBACPolicy {
	out := RBACPolicy{Principals: []Principal{anyone()}}
	comma := ","
	for _, h := range connectHeaders() {
		out.Permissions = append(out.Permissions, header(h, &StringMatcher{Contains: &comma}))
	}
	return out
}

// text is a value as JSON. What is written here always can be.
func text(v any) string {
	out, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	return string(out)
}
