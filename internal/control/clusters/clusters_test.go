// SPDX-License-Identifier: Apache-2.0

package clusters_test

import (
	"net/netip"
	"slices"
	"strings"
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

const (
	vpnOf = "outbound|1194||vpn-seed-server."
	apiOf = "outbound|443||kube-apiserver."
	local = ".svc.cluster.local"
)

// listing is a tenant with destinations.
func listing(name, created string, destinations ...string) clusters.Tenant {
	t := reached(name, name, created)
	t.Spec.Ways = []v1alpha1.EdgeWay{{Flow: "vpn", Destinations: destinations}}
	return t
}

// edited is a tenant with another name in its first way.
func edited(t clusters.Tenant, version string, names ...string) clusters.Tenant {
	t.Version = version
	t.Spec.Ways = slices.Clone(t.Spec.Ways)
	t.Spec.Ways[0].Names = names
	return t
}

// names are the hosts of each cluster's first way.
func names(w clusters.World) string {
	out := []string{}
	for _, c := range w.Clusters {
		out = append(out, c.Name+":"+strings.Join(append(c.Ways[0].Hosts, c.Ways[0].Destinations...), ","))
	}
	return strings.Join(out, " ")
}

func refusals(w clusters.World) (out []string) {
	for _, t := range w.Tenants {
		if t.Refused != "" {
			out = append(out, t.Name+": "+t.Refused)
		}
	}
	return out
}

func TestNobodyTakesWhatATenantHas(t *testing.T) {
	older, younger := reached("evil", "evil", "1", "evil.example.org"), reached("ns", "c1", "2", "api.example.org")
	taken := `evil: name "api.example.org" is claimed by ns/c1`
	both := edited(older, "2", "evil.example.org", "api.example.org")
	const before = "evil:evil.example.org c1:api.example.org"
	see := func(when string, w clusters.World, want string, refused ...string) {
		t.Helper()
		if names(w) != want || !slices.Equal(refusals(w), refused) || len(w.Held())+len(w.Lost()) > 0 {
			t.Errorf("%s: %s, refused %q, held %q", when, names(w), refusals(w), append(w.Held(), w.Lost()...))
		}
	}
	var m clusters.Memory
	see("at first", m.Read(nil, []clusters.Tenant{older, younger}), before)
	w := m.Read(nil, []clusters.Tenant{both, younger})
	see("an older one wants it too", w, before, taken)
	if spec := w.Tenants[0].InForce; spec == nil || !slices.Equal(spec.Ways[0].Names, []string{"evil.example.org"}) {
		t.Errorf("what stays in force is not told: %+v", w.Tenants[0])
	}
	see("still", m.Read(nil, []clusters.Tenant{both, younger}), before, taken)
	see("it goes elsewhere, and the other one edits", m.Read(nil, []clusters.Tenant{edited(older, "3", "e.example.org"),
		edited(younger, "3", "api.example.org", "b.example.org")}), "evil:e.example.org c1:api.example.org,b.example.org")
	see("it is given up", m.Read(nil, []clusters.Tenant{both, edited(younger, "4", "b.example.org")}),
		"evil:evil.example.org,api.example.org c1:b.example.org")
	see("the other one is gone", m.Read(nil, []clusters.Tenant{edited(older, "5", "b.example.org")}), "evil:b.example.org")

	// After a start, what was noted counts.
	noted, seen := both, younger
	noted.Seen, noted.Refused, noted.Kept, seen.Seen = true, true, &older.Spec, true
	m = clusters.Memory{}
	see("noted", m.Read(nil, []clusters.Tenant{noted, seen}), before, taken)
	noted.Kept = nil
	m = clusters.Memory{}
	see("noted as new", m.Read(nil, []clusters.Tenant{noted, seen}), "c1:api.example.org", taken)
	m = clusters.Memory{}
	see("new", m.Read(nil, []clusters.Tenant{both, seen}), "c1:api.example.org", taken)
	both.Seen = true
	m = clusters.Memory{}
	for range 2 {
		w = m.Read(nil, []clusters.Tenant{both, seen})
		see("not known who had it", w, "evil:evil.example.org,api.example.org c1:api.example.org")
		if w.Tenants[0].Shared != `name "api.example.org" is claimed by ns/c1 too` || w.Tenants[1].Shared == "" {
			t.Errorf("%+v", w.Tenants)
		}
	}
	see("one gives way", m.Read(nil, []clusters.Tenant{edited(both, "6", "evil.example.org"), seen}), before)
	twice := seen
	twice.Namespace = "zz"
	m = clusters.Memory{}
	see("two of one name", m.Read(nil, []clusters.Tenant{twice, seen}), "c1:api.example.org",
		`c1: cluster "c1" is claimed by ns/c1`)
}

func TestTheNamespaceOfDestinationsIsOneTenants(t *testing.T) {
	var m clusters.Memory
	victim := listing("c1", "2", vpnOf+"shoot--p--c1"+local)
	m.Read(nil, []clusters.Tenant{victim})
	evil := listing("evil", "1", apiOf+"shoot--p--c1"+local)
	w := m.Read(nil, []clusters.Tenant{evil, victim})
	if len(w.Clusters) != 1 || w.Clusters[0].Name != "c1" ||
		w.Tenants[0].Refused != `namespace "shoot--p--c1" of destinations is claimed by c1/c1` {
		t.Errorf("%+v", w)
	}
}

func TestNobodyFromElsewhereHasDestinationsWhereAnAPIServerIs(t *testing.T) {
	at := func(namespace, name string) clusters.Tenant {
		o := reached(namespace, name, "2", name+".example.org")
		o.Spec.Ways[0].Upstreams = []string{name + ".shoot--p--c1.svc:443"}
		return o
	}
	victim, neighbour := at("shoot--p--c1", "c1"), at("shoot--p--c1", "c2")
	evil := listing("evil", "1", vpnOf+"shoot--p--c1"+local)
	var m clusters.Memory
	m.Read(nil, []clusters.Tenant{victim})
	w := m.Read(nil, []clusters.Tenant{evil, victim, neighbour})
	if len(w.Clusters) != 2 || !slices.Equal(refusals(w), []string{
		`evil: namespace "shoot--p--c1" has the control plane of shoot--p--c1/c1`}) {
		t.Errorf("%q, %q", names(w), refusals(w))
	}
	neighbour.Version, neighbour.Spec.Ways = "3", append(neighbour.Spec.Ways, evil.Spec.Ways...)
	if w = m.Read(nil, []clusters.Tenant{victim, neighbour}); len(refusals(w)) > 0 {
		t.Errorf("who is there may: %q", refusals(w))
	}
	if w = m.Read(nil, []clusters.Tenant{at("evil", "c3"), listing("c4", "1", vpnOf+"shoot--p--c1"+local)}); len(refusals(w)) > 0 {
		t.Errorf("who only leads there has it not: %q", refusals(w))
	}
}

func TestWhatIsReadableOfAProtectedTenantIsClosed(t *testing.T) {
	var m clusters.Memory
	m.Read(nil, nil)
	bad := reached("ns", "a", "1", "api.a.example.org", "not a name")
	if w := m.Read(nil, []clusters.Tenant{bad}); len(w.Clusters) > 0 || len(w.Lost()) > 0 {
		t.Errorf("it never was in force: %+v", w)
	}
	bad.Version, bad.Spec.Protected = "2", true
	for range 2 {
		w := m.Read(nil, []clusters.Tenant{bad})
		if names(w) != "a:api.a.example.org" || admits(t, w, "a", "203.0.113.9") || w.Tenants[0].InForce != nil ||
			len(refusals(w)) != 1 {
			t.Fatalf("%+v", w)
		}
	}
	if w := m.Read([]clusters.Policy{office("1", "203.0.113.0/24")}, []clusters.Tenant{bad}); !admits(t, w, "a", "203.0.113.9") ||
		admits(t, w, "a", "198.51.100.1") {
		t.Errorf("what a policy says about it holds: %+v", w)
	}
	other := reached("ns", "b", "2", "api.b.example.org", "?")
	other.Spec.Protected = true
	if w := m.Read(nil, []clusters.Tenant{edited(bad, "3", "api.b.example.org"), other}); names(w) != "a:api.b.example.org" {
		t.Errorf("it takes nothing from others: %s, %q", names(w), refusals(w))
	}
}

func TestATenantThatIsNotKnownAfterAStartHoldsItself(t *testing.T) {
	a, bad := reached("ns", "a", "1", "api.a.example.org"), reached("ns", "b", "2", "api.b.example.org", "not a name")
	a.Seen, bad.Seen = true, true
	var m clusters.Memory
	for range 2 {
		w := m.Read(nil, []clusters.Tenant{a, bad})
		if len(w.Held()) > 0 || !slices.Equal(w.Lost(), []string{"EdgeTenant ns/b"}) ||
			names(w) != "a:api.a.example.org b:api.b.example.org" {
			t.Errorf("%s, held %q, %q", names(w), w.Held(), w.Lost())
		}
	}
	noted, kept := bad, reached("ns", "b", "2", "api.b.example.org").Spec
	noted.Refused, noted.Kept = true, &kept
	if w := m.Read(nil, []clusters.Tenant{a, noted}); len(w.Lost()) > 0 || w.Tenants[1].InForce == nil {
		t.Errorf("another replica knows it: %+v", w)
	}
	if w := m.Read(nil, []clusters.Tenant{a, edited(bad, "3", "api.b.example.org")}); len(w.Lost())+len(refusals(w)) > 0 {
		t.Errorf("mended: %+v", w)
	}
}

func TestWhereControlPlanesAre(t *testing.T) {
	of := func(namespace, name string, upstream string, destinations ...string) clusters.Tenant {
		o := reached(namespace, name, "1", name+".example.org")
		o.Spec.Ways[0].Upstreams = []string{upstream}
		if len(destinations) > 0 {
			o.Spec.Ways = append(o.Spec.Ways, v1alpha1.EdgeWay{Flow: "vpn", Destinations: destinations})
		}
		return o
	}
	ingress := of("shoots", "i", "nginx.garden.svc:443")
	ingress.Spec.Ways[0].Flow = "ingress"
	for name, c := range map[string]struct {
		tenants []clusters.Tenant
		want    string
	}{
		"its Service":             {[]clusters.Tenant{of("x", "a", "kube-apiserver.ns.svc.cluster.local:443")}, "ns"},
		"its object":              {[]clusters.Tenant{of("ns", "a", "10.0.0.1:443")}, "ns"},
		"many objects":            {[]clusters.Tenant{of("ns", "a", "10.0.0.1:443"), of("ns", "b", "10.0.0.2:443")}, " "},
		"its destinations":        {[]clusters.Tenant{of("x", "a", "10.0.0.1:443", vpnOf+"ns"+local)}, "ns"},
		"one Service for all":     {[]clusters.Tenant{of("x", "a", "hub.hub.svc:1"), of("y", "b", "hub.hub.svc:2")}, " "},
		"another one's":           {[]clusters.Tenant{of("ns", "a", "k.ns.svc:1"), of("zz", "b", "k.ns.svc:1")}, "ns "},
		"claimed by another one":  {[]clusters.Tenant{of("a", "a", "k.ns.svc:1"), of("x", "b", "10.0.0.1:443", vpnOf+"ns"+local)}, " ns"},
		"an ingress of a seed":    {[]clusters.Tenant{ingress}, "shoots"},
		"a name that is no such":  {[]clusters.Tenant{of("x", "a", "k.ns.example.org:1")}, "x"},
		"an address and a domain": {[]clusters.Tenant{of("x", "a", "[2001:db8::1]:443")}, "x"},
	} {
		var m clusters.Memory
		var got []string
		for _, k := range m.Read(nil, c.tenants).Clusters {
			got = append(got, k.Namespace)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %q, want %q", name, strings.Join(got, " "), c.want)
		}
	}
}
