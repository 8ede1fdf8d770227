// SPDX-License-Identifier: Apache-2.0

package istio

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tombolo-io/tombolo/internal/access/policy"
)

// policyName is the name of the AuthorizationPolicy of a cluster.
func policyName(cluster string) string { return "tombolo-" + cluster }

func (p *planner) authorizationPolicy(name, cluster, action string, rules []AuthzRule) AuthorizationPolicy {
	return AuthorizationPolicy{
		TypeMeta: TypeMeta{APISecurity, KindAuthorizationPolicy},
		Metadata: p.meta(p.w.Namespace, name, cluster),
		Spec:     AuthzSpec{Selector: &Selector{p.w.Labels}, Action: action, Rules: rules},
	}
}

// policy writes the AuthorizationPolicy of a cluster: it denies whom the lists refuse.
//
// Istio drops a condition on headers or hosts from a DENY rule at a TCP chain, which makes the rule wider. So each such
// rule has ports or server names that no TCP chain of another cluster has.
func (p *planner) policy(c Cluster) {
	var rules []AuthzRule
	by := KindAuthorizationPolicy + " " + p.w.Namespace + "/" + policyName(c.Name)
	for _, chain := range p.chains {
		if chain.Connect {
			continue
		}
		for _, r := range p.listed(c, chain) {
			conditions, why := p.conditions(c, chain, r)
			if why != "" {
				p.uncovered(c, chain, []Reach{r}, why)
				continue
			}
			p.covered(c, chain, []Reach{r}, by)
			for _, rule := range denies(c.Ways[r.way].List, conditions) {
				if !slices.ContainsFunc(rules, func(o AuthzRule) bool { return text(o) == text(rule) }) {
					rules = append(rules, rule)
				}
			}
		}
	}
	for i, w := range c.Ways {
		if hosts := p.awaited(c)[i]; len(hosts) > 0 {
			rules = append(rules, denies(w.List, AuthzRule{When: []AuthzWhen{p.named(c, i, 0, hosts)}})...)
		}
	}
	if connect := p.connectRules(c); len(connect) > 0 {
		rules = append(rules, connect...)
		for _, port := range p.w.ConnectPorts {
			p.connectCovered(c.Name, port, by)
		}
	}
	if len(rules) > 0 {
		p.out.AuthorizationPolicies = append(p.out.AuthorizationPolicies,
			p.authorizationPolicy(policyName(c.Name), c.Name, "DENY", rules))
	}
}

// denies are the rules against whom a list refuses, under some conditions.
func denies(l policy.SourceList, conditions AuthzRule) (out []AuthzRule) {
	if allow := prefixes(l.Allow); l.Protected {
		rule := conditions
		if len(allow) > 0 {
			rule.From = []AuthzFrom{{AuthzSource{NotRemoteIPBlocks: texts(allow)}}}
		}
		out = append(out, rule)
	}
	if deny := prefixes(l.Deny); len(deny) > 0 {
		rule := conditions
		rule.From = []AuthzFrom{{AuthzSource{RemoteIPBlocks: texts(deny)}}}
		out = append(out, rule)
	}
	return out
}

// conditions are those by which a rule finds the connections of a cluster in a chain.
func (p *planner) conditions(c Cluster, chain Chain, r Reach) (out AuthzRule, why string) {
	switch chain.Kind {
	case Added:
		return out, "an EnvoyFilter adds the chain: no AuthorizationPolicy is in it"
	case Automatic:
		return out, "Istio puts no AuthorizationPolicy into AUTO_PASSTHROUGH chains"
	}
	sni := chain.SNI
	if !chain.http() && len(r.Names) > 0 {
		sni = r.Names
	}
	if len(sni) > 0 && !slices.Contains(sni, "*") {
		when := p.named(c, r.way, chain.Port, sni)
		if !chain.http() {
			when.NotValues = lower(append(when.NotValues, narrower(c, chain, r)...))
		}
		out.When = append(out.When, when)
	} else if !p.alone(chain) {
		return out, "the chain has no server name, and others share its port: no AuthorizationPolicy tells it apart"
	}
	operation := AuthzOperation{}
	if len(out.When) == 0 {
		operation.Ports = p.seenAs(chain.Port)
	}
	if chain.http() && len(r.Names) > 0 && !slices.Contains(r.Names, "*") {
		operation.Ports = p.seenAs(chain.Port)
		for _, n := range lower(r.Names) {
			operation.Hosts = append(operation.Hosts, n)
			if strings.HasPrefix(n, "*") {
				return out, "a shared HTTP chain by a wildcard host: an AuthorizationPolicy cannot tell the host with a port apart"
			}
			operation.Hosts = append(operation.Hosts, n+":*")
		}
	}
	if len(operation.Ports) > 0 {
		out.To = []AuthzTo{{operation}}
	}
	return out, ""
}

// alone reports whether a chain is the only one of its port.
func (p *planner) alone(c Chain) bool {
	sni, ok := p.single(c)
	return ok && sni == ""
}

// narrower are the names of other ways that a name of this one matches too.
func narrower(c Cluster, chain Chain, r Reach) (out []string) {
	for _, n := range r.Names {
		out = append(out, chain.except[n]...)
	}
	for _, o := range chain.Reaches {
		if o.Cluster == c.Name && o.way == r.way {
			continue
		}
		for _, m := range o.Names {
			if slices.ContainsFunc(r.Names, func(n string) bool { return m != n && within(m, n) }) {
				out = append(out, strings.ToLower(m))
			}
		}
	}
	return out
}

// named is the condition for server names of a way at a port, 0: at any. A policy is in every chain: without the names
// of chains that lead elsewhere, to which Envoy gives connections by the longer name.
func (p *planner) named(c Cluster, way int, port uint32, names []string) AuthzWhen {
	out := AuthzWhen{Key: "connection.sni", Values: lower(names)}
	if !slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, "*") }) {
		return out
	}
	for _, o := range p.chains {
		if o.Kind == Added || o.Connect || port != 0 && o.Port != port || slices.ContainsFunc(o.Reaches, func(r Reach) bool {
			return r.Cluster == c.Name && r.way == way
		}) {
			continue
		}
		for _, m := range lower(o.SNI) {
			if slices.ContainsFunc(out.Values, func(n string) bool { return within(m, n) }) && !slices.Contains(out.Values, m) {
				out.NotValues = append(out.NotValues, m)
			}
		}
	}
	out.NotValues = lower(out.NotValues)
	return out
}

// lower are names as Envoy compares them, sorted.
func lower(in []string) []string {
	if len(in) == 0 {
		return nil
	}
	out := make([]string, 0, len(in))
	for _, s := range in {
		out = append(out, strings.ToLower(s))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// connectRules are the rules of a cluster for the CONNECT ports.
func (p *planner) connectRules(c Cluster) (out []AuthzRule) {
	to := p.connectPorts()
	if to == nil {
		return nil
	}
	var all []string
	for _, w := range c.Ways {
		all = append(all, w.Destinations...)
	}
	if !c.atConnect() {
		return nil
	}
	slices.Sort(all)
	for _, h := range connectHeaders() {
		key := "request.headers[" + h + "]"
		for _, w := range c.Ways {
			if len(w.Destinations) > 0 {
				when := []AuthzWhen{{Key: key, Values: slices.Sorted(slices.Values(w.Destinations))}}
				out = append(out, denies(w.List, AuthzRule{To: to, When: when})...)
			}
		}
		var like []string
		for _, ns := range c.namespaces() {
			like = append(like, "*."+ns+".svc.cluster.local", ns+"--kube-apiserver-socket")
		}
		out = append(out, AuthzRule{To: to, When: []AuthzWhen{{Key: key, Values: like, NotValues: all}}})
	}
	return out
}

// connectPorts restricts a rule to the CONNECT ports.
func (p *planner) connectPorts() []AuthzTo {
	var ports []string
	for _, c := range p.w.ConnectPorts {
		ports = append(ports, p.seenAs(c.Port)...)
	}
	if ports == nil {
		return nil
	}
	slices.Sort(ports)
	return []AuthzTo{{AuthzOperation{Ports: slices.Compact(ports)}}}
}

// seenAs are the ports that Envoy may see where the gateway listens at one: a header of the PROXY protocol names that
// of the Service. One that leads to another port too is left out: the rule would be for the connections there as well.
func (p *planner) seenAs(port uint32) []string {
	out := []uint32{port}
	for _, s := range p.f.Services {
		if !p.w.selected(s) {
			continue
		}
		for _, sp := range s.Spec.Ports {
			if target, ok := p.w.target(sp); !ok || target != port || slices.Contains(out, sp.Port) {
				continue
			}
			if p.elsewhere(sp.Port, port) {
				problem := Problem{Object: "Service " + s.Metadata.key(), What: fmt.Sprintf("port %d leads to port %d "+
					"and to others: no AuthorizationPolicy tells them apart behind the PROXY protocol", sp.Port, port)}
				if !slices.Contains(p.problems, problem) {
					p.problems = append(p.problems, problem)
				}
				continue
			}
			out = append(out, sp.Port)
		}
	}
	slices.Sort(out)
	texts := make([]string, 0, len(out))
	for _, n := range out {
		texts = append(texts, strconv.Itoa(int(n)))
	}
	return texts
}

// elsewhere reports whether connections to a port may come to another one than at.
func (p *planner) elsewhere(port, at uint32) bool {
	for _, s := range p.f.Services {
		if !p.w.selected(s) {
			continue
		}
		for _, sp := range s.Spec.Ports {
			if target, ok := p.w.target(sp); sp.Port == port && (!ok || target != at) {
				return true
			}
		}
	}
	return slices.ContainsFunc(p.chains, func(c Chain) bool { return c.Port == port })
}
