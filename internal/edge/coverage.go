// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"cmp"
	"slices"
	"strings"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/access/authz"
	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/edge/tenant"
)

// rules are what coverage asks the policy.
type rules interface {
	Protects(cluster, flow string) bool
	Names(cluster string) bool
	Guards(cluster, flow string) []policy.Guard
}

// guardOf says what guards a way: GuardUnguarded if nothing does although rules name the cluster. Whoever wrote those
// rules means to protect it, and this way leads past them.
func guardOf(t *tenant.Tenant, w *tenant.Way, p rules) string {
	switch {
	case p.Protects(t.Name, w.Flow):
		return admin.GuardRules
	case t.Protected:
		return admin.GuardTenant
	case p.Names(t.Name):
		return admin.GuardUnguarded
	}
	return admin.GuardOpen
}

// unguarded counts the ways that lead past the rules of their cluster, and names the first such clusters.
func unguarded(tenants []*tenant.Tenant, p rules) (ways int, clusters []string) {
	for _, t := range tenants {
		before := ways
		for i := range t.Ways {
			if guardOf(t, &t.Ways[i], p) == admin.GuardUnguarded {
				ways++
			}
		}
		if ways > before && len(clusters) < clustersListed {
			clusters = append(clusters, t.Name)
		}
	}
	return ways, clusters
}

// Coverage lists every way by which tenants can be reached, those without a guard first, and the rules that guard it.
// A cluster limits the list to its own ways.
func Coverage(tenants []*tenant.Tenant, table *authz.Table, cluster string) admin.EdgeCoverage {
	return coverage(tenants, table, cluster)
}

func coverage(tenants []*tenant.Tenant, p rules, cluster string) admin.EdgeCoverage {
	out := admin.EdgeCoverage{
		Meta:   admin.Meta{APIVersion: v1alpha1.Version, Kind: "EdgeCoverage"},
		Guards: map[string]int{}, Ways: []admin.EdgeWay{},
	}
	type found struct {
		t     *tenant.Tenant
		way   int
		guard string
	}
	var all []found
	for _, t := range tenants {
		if cluster != "" && t.Name != cluster {
			continue
		}
		out.Tenants++
		for i := range t.Ways {
			guard := guardOf(t, &t.Ways[i], p)
			out.Guards[guard]++
			all = append(all, found{t, i, guard})
		}
	}
	slices.SortStableFunc(all, func(a, b found) int {
		return cmp.Or(urgency(a.guard)-urgency(b.guard), strings.Compare(a.t.Name, b.t.Name))
	})
	for _, f := range all[:min(len(all), waysListed)] {
		w := &f.t.Ways[f.way]
		row := admin.EdgeWay{Cluster: f.t.Name, Flow: w.Flow, Protocols: w.Protocols, Guard: f.guard}
		for _, u := range w.Upstreams {
			row.Upstreams = append(row.Upstreams, u.String())
		}
		for _, n := range w.Names {
			row.Names = append(row.Names, tenant.Pattern(n))
		}
		for _, d := range w.Destinations {
			row.Destinations = append(row.Destinations, d.String())
		}
		if f.guard == admin.GuardRules {
			for _, g := range p.Guards(f.t.Name, w.Flow) {
				row.Rules = append(row.Rules, admin.EdgeRule(g))
			}
		}
		out.Ways = append(out.Ways, row)
	}
	out.More = len(all) - len(out.Ways)
	return out
}

// urgency orders guards: what an operator must see comes first.
func urgency(guard string) int {
	return slices.Index([]string{admin.GuardUnguarded, admin.GuardOpen, admin.GuardTenant, admin.GuardRules}, guard)
}

// watchCoverage counts the unguarded ways for the metric, and logs when their number changes.
func (e *Edge) watchCoverage() {
	ways, clusters := unguarded(e.tenants.All(), e.table)
	if was := e.unguarded.Swap(int64(ways)); was == int64(ways) {
		return
	}
	if ways == 0 {
		e.log.Info("every way into clusters that rules name is guarded")
		return
	}
	e.log.Warn("ways lead past the rules of their clusters: no rule is for their flows", "ways", ways,
		"clusters", strings.Join(clusters, " "))
}
