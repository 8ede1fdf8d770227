// SPDX-License-Identifier: Apache-2.0

package istio

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Planned are the objects that enforce the lists at a gateway.
type Planned struct {
	EnvoyFilters          []EnvoyFilter
	AuthorizationPolicies []AuthorizationPolicy
	ConfigMaps            []ConfigMap
	Injected              []Injection `json:",omitempty"` // see Injections
	Covered               []Covered
}

// And are the objects of two plans, for different gateways.
func (p Planned) And(o Planned) Planned {
	return Planned{
		EnvoyFilters:          slices.Concat(p.EnvoyFilters, o.EnvoyFilters),
		AuthorizationPolicies: slices.Concat(p.AuthorizationPolicies, o.AuthorizationPolicies),
		ConfigMaps:            slices.Concat(p.ConfigMaps, o.ConfigMaps),
		Injected:              slices.Concat(p.Injected, o.Injected),
		Covered:               slices.Concat(p.Covered, o.Covered),
	}
}

// Covered says by which object a way into a cluster is guarded.
type Covered struct {
	Cluster string
	Flow    string
	Chain   string
	By      string // the object; empty: none
	Why     string // there is none
}

func (c Covered) String() string {
	if c.By == "" {
		return fmt.Sprintf("%s/%s by the %s: open: %s", c.Cluster, c.Flow, c.Chain, c.Why)
	}
	return fmt.Sprintf("%s/%s by the %s: %s", c.Cluster, c.Flow, c.Chain, c.By)
}

// Plan writes the objects that enforce the lists of all clusters at a gateway. The same facts give the same bytes.
// A way that no object can guard is a problem, and covered by nothing.
func Plan(f Facts, w Workload) (Planned, []Problem) {
	f.Clusters = slices.SortedFunc(slices.Values(f.Clusters), func(a, b Cluster) int {
		return strings.Compare(a.Name, b.Name)
	})
	p := &planner{f: f, w: w, limit: mostBytes}
	p.chains, p.problems = Chains(f, w)
	p.check()
	for _, c := range f.Clusters {
		if !c.listed() {
			continue
		}
		switch w.forChains() {
		case EnvoyFilters:
			p.filterForChains(c)
		case Policies:
			p.policy(c)
		}
		p.strays(c)
	}
	if w.forConnect() == EnvoyFilters {
		p.filtersForConnect()
	} else {
		p.refuseRepeated()
	}
	if w.forConnect() == ExtAuthz || w.forChains() == ExtAuthz {
		p.askedOutside()
	}
	slices.SortFunc(p.out.Covered, func(a, b Covered) int {
		return cmp.Or(strings.Compare(a.Cluster, b.Cluster), strings.Compare(a.Flow, b.Flow),
			strings.Compare(a.Chain, b.Chain), strings.Compare(a.By, b.By))
	})
	p.out.Covered = slices.Compact(p.out.Covered)
	return p.out, p.problems
}

// planner collects objects.
type planner struct {
	f        Facts
	w        Workload
	limit    int
	chains   []Chain
	out      Planned
	problems []Problem
}

// check reports names that two clusters have, and ways that cannot be told apart.
func (p *planner) check() {
	hosts, destinations, names := map[string]string{}, map[string]string{}, map[string]bool{}
	claim := func(all map[string]string, what, key string, c Cluster, w Way) {
		if o, taken := all[key]; taken && o != c.Name {
			p.problems = append(p.problems, Problem{Cluster: c.Name, Flow: w.Flow,
				What: fmt.Sprintf("%s %s is claimed by cluster %s too: both lists hold", what, key, o)})
			return
		}
		all[key] = c.Name
	}
	for _, c := range p.chains {
		if !c.http() && c.Kind != Added && p.w.isConnect(c.Port) {
			p.problems = append(p.problems, Problem{Object: c.Object,
				What: fmt.Sprintf("port %d is a CONNECT port, and this is no HTTP chain: nobody reads its headers", c.Port)})
		}
	}
	for _, c := range p.f.Clusters {
		if names[c.Name] {
			p.problems = append(p.problems, Problem{Cluster: c.Name, What: "there are two clusters of this name"})
		}
		names[c.Name] = true
		for _, w := range c.Ways {
			for _, h := range w.Hosts {
				claim(hosts, "host", strings.ToLower(h), c, w)
			}
			for _, d := range w.Destinations {
				claim(destinations, "destination", d, c, w)
			}
		}
	}
}

// listed are the ways with a list by which a chain leads to a cluster.
func (p *planner) listed(c Cluster, chain Chain) (out []Reach) {
	for _, r := range chain.Reaches {
		if r.Cluster != c.Name {
			continue
		}
		if r.way < 0 {
			p.uncovered(c, chain, []Reach{r}, "it leads to the cluster, and none of the cluster's ways is it")
			continue
		}
		if c.Ways[r.way].Listed() {
			out = append(out, r)
		}
	}
	return out
}

func (p *planner) covered(c Cluster, chain Chain, reaches []Reach, by string) {
	for _, r := range reaches {
		p.out.Covered = append(p.out.Covered, Covered{Cluster: c.Name, Flow: r.Flow, Chain: chain.String(), By: by})
	}
}

func (p *planner) uncovered(c Cluster, chain Chain, reaches []Reach, why string) {
	for _, r := range reaches {
		p.out.Covered = append(p.out.Covered, Covered{Cluster: c.Name, Flow: r.Flow, Chain: chain.String(), Why: why})
		p.problems = append(p.problems, Problem{Cluster: c.Name, Flow: r.Flow, Object: chain.Object, What: why})
	}
}

// connectCovered says that an object guards the ways of a cluster at a CONNECT port.
func (p *planner) connectCovered(cluster string, port ConnectPort, by string) {
	for _, c := range p.f.Clusters {
		if c.Name != cluster {
			continue
		}
		for _, w := range c.Ways {
			if len(w.Destinations) > 0 && w.Listed() {
				p.out.Covered = append(p.out.Covered, Covered{Cluster: cluster, Flow: w.Flow,
					Chain: fmt.Sprintf("CONNECT port %d", port.Port), By: by})
			}
		}
	}
}

// strays reports Services by which a cluster is reached beside every gateway.
func (p *planner) strays(c Cluster) {
	for _, u := range beside(p.f, c) {
		p.out.Covered = append(p.out.Covered, Covered{Cluster: c.Name, Flow: u.Flow, Chain: u.Way, Why: u.Why})
		p.problems = append(p.problems, Problem{Cluster: c.Name, Flow: u.Flow, Object: u.Way, What: u.Why})
	}
}

// beside are the Services of a cluster's control plane that are open to clients without a gateway.
func beside(f Facts, c Cluster) (out []Uncovered) {
	for _, s := range f.Services {
		why := "its type is " + s.Spec.Type
		if len(s.Spec.ExternalIPs) > 0 {
			why = "it has externalIPs"
		} else if s.Spec.Type != "LoadBalancer" && s.Spec.Type != "NodePort" {
			continue
		}
		if !slices.Contains(c.namespaces(), s.Metadata.Namespace) {
			continue
		}
		flow, _ := c.wayTo(nil, s.Metadata.Name)
		out = append(out, Uncovered{Cluster: c.Name, Flow: flow, Way: "Service " + s.Metadata.key(), Kind: Open,
			Why: why + ": clients reach it without the gateway"})
	}
	return out
}
