// SPDX-License-Identifier: Apache-2.0

// Package clusters puts together what objects of kind AccessPolicy and EdgeTenant say: clusters with the ways into them
// and the lists of each. What cannot be read keeps what it said last. It reads values only, and knows nothing of
// Kubernetes' libraries.
package clusters

import (
	"cmp"
	"slices"
	"strings"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/access/istio"
	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/edge/tenant"
)

// Policy is an AccessPolicy as it is stored.
type Policy struct {
	Name    string
	Version string // changes with the content
	Content v1alpha1.AccessContent
	Kept    *v1alpha1.AccessContent // what was noted as in force when the content could not be read; nil: nothing
}

// Tenant is an EdgeTenant as it is stored.
type Tenant struct {
	Namespace, Name string
	Created         string // sorts as a text: of two that nobody has looked at, the older one has what both claim
	Version         string // changes with the content
	Spec            v1alpha1.EdgeTenantSpec
	Seen            bool                     // somebody looked at it already: it may be in force
	Refused         bool                     // it is noted that the content was refused, and what stays in force
	Kept            *v1alpha1.EdgeTenantSpec // that; nil: nothing
}

// Rules is what came of a policy.
type Rules struct {
	Name    string
	Source  string                 // where its rules are written
	Content v1alpha1.AccessContent // in force
	Refused []policy.Problem       // why the stored content is not
	Partly  []policy.Partial       // what a list of sources cannot say
	Lost    bool                   // it is refused, and what was in force is not known
}

// Ways is what came of a tenant.
type Ways struct {
	Namespace, Name string
	Refused         string                   // why what is stored is not in force
	InForce         *v1alpha1.EdgeTenantSpec // what is in its place; nil: nothing, or what can be read of it
	Shared          string                   // what another one has too: both are in force
	Lost            bool                     // it is refused, and what was in force is not known
}

// World is what all objects say together.
type World struct {
	Clusters []istio.Cluster
	Policies []Rules // SourceEntry.Policy is an index of these
	Tenants  []Ways
}

// Held says which policies are not known, so that nothing should be written or removed: their rules are about any
// cluster.
func (w World) Held() (why []string) {
	for _, p := range w.Policies {
		if p.Lost {
			why = append(why, "AccessPolicy "+p.Name)
		}
	}
	return why
}

// Lost says of which tenants it is not known what was in force, so that nothing of theirs should be changed.
func (w World) Lost() (why []string) {
	for _, t := range w.Tenants {
		if t.Lost {
			why = append(why, "EdgeTenant "+t.Namespace+"/"+t.Name)
		}
	}
	return why
}

// Memory keeps what was last good. It belongs to one goroutine.
type Memory struct {
	Always istio.Always // may use every protected way

	policies map[string]goodPolicy
	tenants  map[string]goodTenant
	met      bool // objects that are there from the beginning may have been in force
}

type goodPolicy struct {
	version string // of what is stored
	rules   *policy.Policy
	Rules
}

// Read puts a world together. Order does not matter.
func (m *Memory) Read(policies []Policy, tenants []Tenant) World {
	slices.SortFunc(policies, func(a, b Policy) int { return strings.Compare(a.Name, b.Name) })
	var w World
	var compiled []*policy.Policy
	known := map[string]goodPolicy{}
	for _, p := range policies {
		good := m.policy(p)
		known[p.Name] = good
		w.Policies, compiled = append(w.Policies, good.Rules), append(compiled, good.rules)
	}
	m.policies = known
	rules := policy.NewEdgeRules(compiled...)
	var placed []Placed
	for _, good := range m.resolve(tenants) {
		w.Tenants = append(w.Tenants, good.Ways)
		if good.tenant != nil {
			placed = append(placed, Placed{good.Namespace, good.tenant})
		}
	}
	for i, home := range Homes(placed) {
		c, partly := Cluster(placed[i].Tenant, home, rules)
		m.Always.LetIn(&c, len(policies))
		w.Clusters = append(w.Clusters, c)
		for _, p := range partly {
			if of := &w.Policies[p.Policy].Partly; !slices.Contains(*of, p) {
				*of = append(*of, p)
			}
		}
	}
	if len(m.Always) > 0 { // the last one: it has no object
		w.Policies = append(w.Policies, Rules{Name: istio.RuleAlways, Source: "features.access.additionalRanges"})
	}
	m.met = true
	return w
}

func (m *Memory) policy(p Policy) goodPolicy {
	last, met := m.policies[p.Name]
	noted := p.Kept != nil && last.rules == nil // by another replica, since
	if met && last.version == p.Version && !noted {
		return last
	}
	out := goodPolicy{version: p.Version, Rules: Rules{Name: p.Name, Source: "AccessPolicy " + p.Name,
		Content: p.Content}}
	compiled, problems := policy.Of(p.Content)
	if compiled != nil {
		out.rules = compiled
		return out
	}
	out.Refused = slices.DeleteFunc(problems, func(q policy.Problem) bool { return q.Warning })
	switch {
	case met && !noted:
		out.rules, out.Content, out.Lost = last.rules, last.Content, last.Lost
	case p.Kept != nil:
		out.Content = *p.Kept
		out.rules, _ = policy.Of(out.Content)
		out.Lost = out.rules == nil
	default: // a new one never was in force
		out.Content, out.Lost = v1alpha1.AccessContent{}, !m.met
	}
	return out
}

// Cluster is a tenant, whose control plane is in the namespace home, with the lists that rules give it, and the rules
// of which a list says a part only.
func Cluster(t *tenant.Tenant, home string, rules *policy.EdgeRules) (c istio.Cluster, partly []policy.Partial) {
	c.Name, c.Namespace = t.Name, home
	for _, way := range t.Ways {
		of := istio.Way{Flow: way.Flow}
		for _, name := range way.Names {
			of.Hosts = append(of.Hosts, tenant.Pattern(name))
		}
		for _, d := range way.Destinations {
			of.Destinations = append(of.Destinations, d.String())
			c.Namespace = cmp.Or(c.Namespace, d.Namespace)
		}
		ways, some := istio.Ways(rules, t.Name, t.Protected, of)
		c.Ways, partly = append(c.Ways, ways...), append(partly, some...)
	}
	return c, partly
}
