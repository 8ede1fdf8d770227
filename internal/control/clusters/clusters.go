// SPDX-License-Identifier: Apache-2.0

// Package clusters puts together what objects of kind AccessPolicy and EdgeTenant say: clusters with the ways into them
// and the lists of each. What cannot be read keeps what it said last. It reads values only, and knows nothing of
// Kubernetes' libraries.
package clusters

import (
	"cmp"
	"encoding/json"
	"fmt"
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
	Created         string // sorts as a text: of two that claim the same, the older one has it
	Version         string
	Spec            v1alpha1.EdgeTenantSpec
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
	Refused         string // why what is stored is not in force
	Lost            bool
}

// World is what all objects say together.
type World struct {
	Clusters []istio.Cluster
	Policies []Rules // SourceEntry.Policy is an index of these
	Tenants  []Ways
}

// Held says what is not known, so that nothing should be written or removed.
func (w World) Held() (why []string) {
	for _, p := range w.Policies {
		if p.Lost {
			why = append(why, "AccessPolicy "+p.Name)
		}
	}
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

type goodTenant struct {
	version string
	tenant  *tenant.Tenant
	Ways
}

// Read puts a world together. Order does not matter.
func (m *Memory) Read(policies []Policy, tenants []Tenant) World {
	slices.SortFunc(policies, func(a, b Policy) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(tenants, func(a, b Tenant) int {
		return cmp.Or(strings.Compare(a.Created, b.Created), strings.Compare(a.Namespace, b.Namespace),
			strings.Compare(a.Name, b.Name))
	})
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
	claims := map[string]string{}
	ways := map[string]goodTenant{}
	for _, t := range tenants {
		key := t.Namespace + "/" + t.Name
		good := m.tenant(key, t)
		if by := claimed(claims, key, good.tenant); by != "" {
			good = goodTenant{version: t.Version, Ways: Ways{Namespace: t.Namespace, Name: t.Name, Refused: by}}
		}
		ways[key] = good
		w.Tenants = append(w.Tenants, good.Ways)
		if good.tenant == nil {
			continue
		}
		c, partly := Cluster(good.tenant, rules)
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
	m.tenants, m.met = ways, true
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

func (m *Memory) tenant(key string, t Tenant) goodTenant {
	last, met := m.tenants[key]
	if met && last.version == t.Version && last.Refused == "" {
		return last
	}
	out := goodTenant{version: t.Version, Ways: Ways{Namespace: t.Namespace, Name: t.Name}}
	read, why := readTenant(t)
	if read != nil {
		out.tenant = read
		return out
	}
	out.Refused = why
	if met {
		out.tenant, out.Lost = last.tenant, last.Lost
	} else {
		out.Lost = !m.met
	}
	return out
}

func readTenant(t Tenant) (*tenant.Tenant, string) {
	data, err := json.Marshal(v1alpha1.EdgeTenant{
		TypeMeta: v1alpha1.TypeMeta{APIVersion: v1alpha1.Version, Kind: v1alpha1.KindEdgeTenant},
		Metadata: v1alpha1.ObjectName{Name: t.Name}, Spec: t.Spec,
	})
	if err != nil {
		return nil, err.Error()
	}
	out, doc := tenant.Read(t.Name, data)
	if ps := doc.Problems(); len(ps) > 0 {
		return nil, ps[0].Path + ": " + ps[0].Message
	}
	return out, ""
}

// claimed notes what belongs to a tenant alone. It says what another one has.
func claimed(claims map[string]string, key string, t *tenant.Tenant) string {
	if t == nil {
		return ""
	}
	all := map[string]string{fmt.Sprintf("cluster %q", t.Name): ""}
	for claim := range t.Claims() {
		all[claim] = ""
	}
	for claim := range all {
		if by, taken := claims[claim]; taken {
			return claim + " is claimed by " + by
		}
	}
	for claim := range all {
		claims[claim] = key
	}
	return ""
}

// Cluster is a tenant with the lists that rules give it, and the rules of which a list says a part only.
func Cluster(t *tenant.Tenant, rules *policy.EdgeRules) (c istio.Cluster, partly []policy.Partial) {
	c.Name = t.Name
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
