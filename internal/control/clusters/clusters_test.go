// SPDX-License-Identifier: Apache-2.0

package clusters_test

import (
	"net/netip"
	"testing"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/access/istio"
	"github.com/tombolo-io/tombolo/internal/control/clusters"
)

func office(version string, ranges ...string) clusters.Policy {
	return clusters.Policy{Name: "office", Version: version, Content: v1alpha1.AccessContent{Rules: []v1alpha1.AccessRule{
		{Name: "office", Clusters: []string{"a"}, Flows: []string{"api"}, Sources: ranges, Allow: []string{"*"}}}}}
}

func reached(namespace, name, created string, hosts ...string) clusters.Tenant {
	return clusters.Tenant{Namespace: namespace, Name: name, Created: created, Version: created + name,
		Spec: v1alpha1.EdgeTenantSpec{Ways: []v1alpha1.EdgeWay{{Flow: "api", Names: hosts, Upstreams: []string{"10.0.0.1:443"}}}}}
}

// admits is what the list of a cluster's first way says.
func admits(t *testing.T, w clusters.World, cluster, from string) bool {
	t.Helper()
	for _, c := range w.Clusters {
		if c.Name == cluster {
			return c.Ways[0].List.Admits(netip.MustParseAddr(from))
		}
	}
	t.Fatalf("there is no cluster %s", cluster)
	return false
}

func TestWhatCannotBeReadKeepsWhatItSaid(t *testing.T) {
	var m clusters.Memory
	tenants := []clusters.Tenant{reached("ns", "a", "1", "api.a.example.org")}
	w := m.Read([]clusters.Policy{office("1", "203.0.113.0/24")}, tenants)
	if !admits(t, w, "a", "203.0.113.9") || admits(t, w, "a", "198.51.100.1") || len(w.Held()) > 0 {
		t.Fatalf("%+v", w)
	}
	bad := tenants[0]
	bad.Version, bad.Spec.Ways = "2", nil
	w = m.Read([]clusters.Policy{office("2", "nonsense")}, []clusters.Tenant{bad})
	if !admits(t, w, "a", "203.0.113.9") || admits(t, w, "a", "198.51.100.1") || len(w.Held()) > 0 {
		t.Errorf("%+v", w)
	}
	p := w.Policies[0]
	if len(p.Refused) == 0 || p.Refused[0].Path != "rules[0].sources[0]" || w.Tenants[0].Refused == "" {
		t.Errorf("%+v", w)
	}
	w = m.Read([]clusters.Policy{office("3", "198.51.100.0/24")}, tenants)
	if admits(t, w, "a", "203.0.113.9") || len(w.Policies[0].Refused) > 0 {
		t.Errorf("%+v", w)
	}
}

func TestWhatIsNotKnownAfterAStartHoldsEverything(t *testing.T) {
	tenants := []clusters.Tenant{reached("ns", "a", "1", "api.a.example.org")}
	bad := office("2", "nonsense")
	var m clusters.Memory
	if w := m.Read([]clusters.Policy{bad}, tenants); len(w.Held()) != 1 {
		t.Errorf("%q", w.Held())
	}
	if w := m.Read([]clusters.Policy{bad}, tenants); len(w.Held()) != 1 {
		t.Errorf("later: %q", w.Held())
	}
	if w := m.Read([]clusters.Policy{office("3", "203.0.113.0/24")}, tenants); len(w.Held()) > 0 {
		t.Errorf("mended: %q", w.Held())
	}
	m = clusters.Memory{}
	kept := office("1", "203.0.113.0/24").Content
	bad.Kept = &kept
	w := m.Read([]clusters.Policy{bad}, tenants)
	if len(w.Held()) > 0 || !admits(t, w, "a", "203.0.113.9") || admits(t, w, "a", "198.51.100.1") {
		t.Errorf("%+v", w)
	}
	m = clusters.Memory{} // another replica notes it later
	m.Read([]clusters.Policy{office("2", "nonsense")}, tenants)
	w = m.Read([]clusters.Policy{bad}, tenants)
	if len(w.Held()) > 0 || !admits(t, w, "a", "203.0.113.9") || admits(t, w, "a", "198.51.100.1") {
		t.Errorf("%+v", w)
	}
	fresh := office("1", "nonsense")
	fresh.Name = "new"
	if w := m.Read([]clusters.Policy{bad, fresh}, tenants); len(w.Held()) > 0 || len(w.Policies[0].Refused) == 0 {
		t.Errorf("a new one was never in force: %+v", w)
	}
}

func TestOfTwoTenantsTheOlderOneHasAName(t *testing.T) {
	var m clusters.Memory
	older, younger := reached("ns", "a", "1", "api.example.org"), reached("ns", "b", "2", "api.example.org")
	w := m.Read(nil, []clusters.Tenant{younger, older})
	if len(w.Clusters) != 1 || w.Clusters[0].Name != "a" || w.Tenants[1].Refused != `name "api.example.org" is claimed by ns/a` {
		t.Errorf("%+v", w)
	}
	if w = m.Read(nil, []clusters.Tenant{younger}); len(w.Clusters) != 1 || w.Clusters[0].Name != "b" {
		t.Errorf("the older one is gone: %+v", w)
	}
}

func TestAdditionalRangesReachProtectedClustersOnly(t *testing.T) {
	m := clusters.Memory{Always: istio.ReadAlways([]string{"192.0.2.0/24"})}
	a, b := reached("ns", "a", "1", "api.a.example.org"), reached("ns", "b", "2", "api.b.example.org")
	a.Spec.Protected = true
	w := m.Read([]clusters.Policy{office("1", "203.0.113.0/24")}, []clusters.Tenant{a, b})
	if !admits(t, w, "a", "192.0.2.1") || admits(t, w, "a", "198.51.100.1") || !admits(t, w, "b", "198.51.100.1") {
		t.Errorf("%+v", w.Clusters)
	}
	e := w.Clusters[0].Ways[0].List.Allow[1]
	if w.Policies[e.Policy].Source != "features.access.additionalRanges" || e.Group != istio.GroupAlways {
		t.Errorf("%+v", e)
	}
}
