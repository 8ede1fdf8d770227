// SPDX-License-Identifier: Apache-2.0

package istio_test

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tombolo-io/tombolo/internal/access/istio"
	"github.com/tombolo-io/tombolo/internal/access/policy"
)

// apiserverProxy is an EnvoyFilter that adds a chain, as Gardener wrote one for each shoot.
const apiserverProxy = `{"name":"shoot--p--a", "filter_chain_match": {"destination_port":443,"prefix_ranges":[]},
  "filters": [ {"name":"envoy.filters.network.tcp_proxy", "typed_config":{
    "@type":"type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
    "cluster":"outbound|443||kube-apiserver.shoot--p--a.svc.cluster.local","stat_prefix":"x"}} ],
  "keep": 1.50, "unicode":"\u00e9"}`

// ownListener adds a listener, with field names as protobuf's JSON has them.
const ownListener = `{"name":"own","address":{"socketAddress":{"address":"0.0.0.0","portValue":7443}},
  "filterChains":[{"filters":[{"name":"tcp","typedConfig":{
    "@type":"type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
    "cluster":"outbound|443||kube-apiserver.shoot--p--a.svc.cluster.local"}}]}]}`

func adds(applyTo, value string) istio.EnvoyFilter {
	return istio.EnvoyFilter{Metadata: meta("istio-ingress", "shoot--p--a"), Spec: istio.EnvoyFilterSpec{
		ConfigPatches: []istio.ConfigPatch{{ApplyTo: applyTo, Match: istio.PatchMatch{Context: "GATEWAY",
			Listener: &istio.ListenerMatch{PortNumber: 8443}}, Patch: istio.Patch{Operation: "ADD", Value: json.RawMessage(value)}}}}}
}

func value(e istio.EnvoyFilter) string { return string(e.Spec.ConfigPatches[0].Patch.Value) }

func TestInject(t *testing.T) {
	w := gateway(istio.Auto)
	allow, deny := list("203.0.113.0/24"), denyOnly("!198.51.100.0/24")
	for applyTo, text := range map[string]string{"FILTER_CHAIN": apiserverProxy, "LISTENER": ownListener} {
		t.Run(applyTo, func(t *testing.T) {
			foreign := adds(applyTo, text)
			none, changed := istio.Inject(foreign, seed(shoot("a", policy.SourceList{})), w)
			if changed || value(none) != text {
				t.Fatal("it is changed though there is no list")
			}
			if _, changed := istio.Inject(foreign, seed(shoot("b", allow)), w); changed {
				t.Fatal("it is changed for another cluster's list")
			}
			if u := istio.Coverage(seed(shoot("a", allow)).With(istio.Planned{EnvoyFilters: []istio.EnvoyFilter{foreign}}), w); len(u) == 0 {
				t.Fatal("an open chain is not reported")
			}
			for _, l := range []policy.SourceList{allow, deny, list()} { // each is an update of the one before
				f := seed(shoot("a", l))
				got, changed := istio.Inject(foreign, f, w)
				if !changed || strings.Count(value(got), istio.GuardName("shoot--p--a")) != 2 { // as name and as stat_prefix
					t.Fatalf("changed %v: %s", changed, value(got))
				}
				for _, kept := range []string{`"keep": 1.50, "unicode":"\u00e9"`, `"cluster":"outbound|443||kube-apiserver`} {
					if strings.Contains(text, kept) && !strings.Contains(value(got), kept) {
						t.Errorf("%s is gone: %s", kept, value(got))
					}
				}
				if again, changed := istio.Inject(got, f, w); changed {
					t.Errorf("a second time: %s", value(again))
				}
				var v any // the API server writes fields in another order
				if err := json.Unmarshal(got.Spec.ConfigPatches[0].Patch.Value, &v); err != nil {
					t.Fatal(err)
				}
				sorted, _ := json.Marshal(v)
				stored := adds(applyTo, string(sorted))
				if _, changed := istio.Inject(stored, f, w); changed {
					t.Error("the same in another order is changed")
				}
				planned, _ := istio.Plan(f, w)
				g := f.With(planned)
				g.EnvoyFilters = append(g.EnvoyFilters, got)
				if u := istio.Coverage(g, w); len(u) > 0 {
					t.Errorf("%v", u)
				}
				if ops := istio.Changes(foreign, got); len(ops) != 1 || ops[0].Path != "/spec/configPatches/0/patch/value" {
					t.Errorf("%v", ops)
				}
				foreign = got
			}
			out, changed := istio.Inject(foreign, seed(shoot("a", policy.SourceList{})), w)
			var was, is bytes.Buffer
			if json.Compact(&was, []byte(text)) != nil || json.Compact(&is, []byte(value(out))) != nil || !changed {
				t.Fatal("it cannot be read")
			}
			if was.String() != is.String() {
				t.Errorf("it is not as it was:\n%s\n%s", was.String(), is.String())
			}
		})
	}
}

// A second cluster that appears in a chain takes nobody's guard away, and no guard is left out for it: who is refused by
// one list does not pass. Coverage reports what that locks out.
func TestInjectKeepsGuardsBesideASecondCluster(t *testing.T) {
	victim := shoot("a", list("203.0.113.0/24"))
	victim.Ways = victim.Ways[:2]
	claims := func(l policy.SourceList) istio.Cluster {
		return istio.Cluster{Name: "evil", Namespace: "evil", Ways: []istio.Way{{Flow: "proxy", List: l,
			Destinations: []string{"outbound|443||kube-apiserver.shoot--p--a.svc.cluster.local"}}}}
	}
	both := strings.Replace(apiserverProxy, `"stat_prefix":"x"`,
		`"stat_prefix":"x","x":"outbound|443||kube-apiserver.shoot--p--b.svc.cluster.local"`, 1)
	w := gateway(istio.Auto)
	a, b, evil := istio.GuardName("shoot--p--a"), istio.GuardName("shoot--p--b"), istio.GuardName("evil")
	for what, x := range map[string]struct {
		value    string
		clusters []istio.Cluster
		guards   []string
		reported bool
	}{
		"one cluster":                  {apiserverProxy, []istio.Cluster{victim}, []string{a}, false},
		"a claim without a list":       {apiserverProxy, []istio.Cluster{claims(policy.SourceList{}), victim}, []string{a}, true},
		"a claim with a list":          {apiserverProxy, []istio.Cluster{victim, claims(list("192.0.2.0/24"))}, []string{evil, a}, true},
		"a claim beside no list":       {apiserverProxy, []istio.Cluster{shoot("a", policy.SourceList{}), claims(list("192.0.2.0/24"))}, []string{evil}, true},
		"a namespace of another's":     {apiserverProxy, []istio.Cluster{victim, {Name: "evil", Namespace: "shoot--p--a"}}, []string{a}, true},
		"two clusters":                 {both, []istio.Cluster{shoot("b", list("192.0.2.0/24")), victim}, []string{a, b}, true},
		"two clusters, one has a list": {both, []istio.Cluster{shoot("b", policy.SourceList{}), victim}, []string{a}, true},
	} {
		f := seed(victim)
		before, _ := istio.Inject(adds("FILTER_CHAIN", x.value), f, w)
		f.Clusters = x.clusters
		for how, from := range map[string]istio.EnvoyFilter{"new": adds("FILTER_CHAIN", x.value), "guarded before": before} {
			for _, webhook := range []bool{false, true} {
				got, _ := istio.Inject(from, f, w)
				if webhook {
					got, _ = istio.Insert(from, f, w)
				}
				want := x.guards
				if webhook && how != "new" && !slices.Contains(want, a) {
					want = append(slices.Clone(want), a) // it takes none out
				}
				var names []string
				var chain struct{ Filters []struct{ Name string } }
				if err := json.Unmarshal([]byte(value(got)), &chain); err != nil {
					t.Fatal(err)
				}
				for _, f := range chain.Filters {
					names = append(names, f.Name)
				}
				if !slices.Equal(names, append(slices.Clone(want), "envoy.filters.network.tcp_proxy")) {
					t.Errorf("%s, %s, webhook %v: %q, want %q first", what, how, webhook, names, want)
				}
				if again, changed := istio.Inject(got, f, w); changed && !webhook {
					t.Errorf("%s, %s: a second time: %s", what, how, value(again))
				}
				if again, changed := istio.Insert(got, f, w); changed {
					t.Errorf("%s, %s: a second time by the webhook: %s", what, how, value(again))
				}
				if webhook {
					continue
				}
				g := f
				p, _ := istio.Plan(f, w)
				g = g.With(p)
				g.EnvoyFilters = append(g.EnvoyFilters, got)
				q := istio.Question{Cluster: "shoot--p--a", Flow: "api", Source: netip.MustParseAddr("198.51.100.1")}
				for _, way := range istio.Decide(g, w, q).Ways {
					if strings.HasPrefix(way.Chain, "added") && way.Allow {
						t.Errorf("%s, %s: open: %+v", what, how, way)
					}
				}
				reported := slices.ContainsFunc(istio.Coverage(g, w), func(u istio.Uncovered) bool {
					return strings.HasPrefix(u.Way, "added")
				})
				if reported != x.reported {
					t.Errorf("%s, %s: reported %v: %v", what, how, reported, istio.Coverage(g, w))
				}
			}
		}
	}
}

func TestInjectLeavesWhatIsNotItsBusiness(t *testing.T) {
	f := seed(shoot("a", list("203.0.113.0/24")))
	w := gateway(istio.Auto)
	elsewhere := adds("FILTER_CHAIN", apiserverProxy)
	elsewhere.Metadata.Namespace = "other"
	ours := adds("FILTER_CHAIN", apiserverProxy)
	ours.Metadata.Labels = map[string]string{istio.LabelManagedBy: istio.ManagedBy}
	merge := adds("FILTER_CHAIN", apiserverProxy)
	merge.Spec.ConfigPatches[0].Patch.Operation = "MERGE"
	for what, e := range map[string]istio.EnvoyFilter{
		"another gateway": elsewhere, "own": ours, "no chain is added": merge,
		"filters are no list": adds("FILTER_CHAIN", `{"filters":{"a":"outbound|443||kube-apiserver.shoot--p--a.svc.cluster.local"}}`),
		"wherever a client wants": adds("FILTER_CHAIN",
			`{"filters":[{"name":"x","cluster_header":"h","c":"outbound|443||kube-apiserver.shoot--p--a.svc.cluster.local"}]}`),
		"broken": adds("FILTER_CHAIN", `{"filters":[`),
	} {
		if got, changed := istio.Inject(e, f, w); changed {
			t.Errorf("%s: %s", what, value(got))
		}
	}
}

func TestInjectedDecidesAsTheList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := seed(shoot("a", drawList(t, "a")))
		w := gateway(istio.Auto)
		planned, _ := istio.Plan(f, w)
		g := f.With(planned)
		foreign := adds("LISTENER", ownListener)
		if rapid.Bool().Draw(t, "there is another guard") {
			foreign, _ = istio.Inject(foreign, seed(shoot("a", drawList(t, "before"))), w)
		}
		got, _ := istio.Inject(foreign, f, w)
		g.EnvoyFilters = append(g.EnvoyFilters, got)
		if u := istio.Coverage(g, w); len(u) > 0 {
			t.Fatal(u)
		}
	})
}

func FuzzInject(f *testing.F) {
	f.Add("FILTER_CHAIN", apiserverProxy)
	f.Add("LISTENER", ownListener)
	f.Add("LISTENER", `{"default_filter_chain":{"filters":[]},"filter_chains":[{}]}`)
	f.Add("NETWORK_FILTER", `{"name":"x","typed_config":{"@type":"`+
		`type.googleapis.com/envoy.extensions.filters.network.rbac.v3.RBAC","rules":{"policies":{"a":{}}}}}`)
	f.Fuzz(func(t *testing.T, applyTo, text string) {
		facts := seed(shoot("a", list("203.0.113.0/24")))
		w := gateway(istio.Auto)
		once, _ := istio.Inject(adds(applyTo, text), facts, w)
		if twice, changed := istio.Inject(once, facts, w); changed {
			t.Fatalf("%s\n%s", value(once), value(twice))
		}
		if value(once) != text && !json.Valid([]byte(value(once))) {
			t.Fatalf("%q is no JSON", value(once))
		}
		facts.EnvoyFilters = []istio.EnvoyFilter{once}
		istio.Coverage(facts, w)
	})
}

func FuzzObjects(f *testing.F) {
	a := shoot("a", list("203.0.113.0/24"))
	facts := seed(a)
	planned, _ := istio.Plan(facts, gateway(istio.Policies))
	for _, o := range []any{facts.Gateways[0], facts.VirtualServices[1], facts.Services[0], planned.AuthorizationPolicies[0]} {
		text, err := json.Marshal(o)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		facts := seed(a)
		var g istio.Gateway
		var v istio.VirtualService
		var s istio.Service
		var p istio.AuthorizationPolicy
		if json.Unmarshal(text, &g) == nil {
			g.Spec.Selector = nil
			facts.Gateways = append(facts.Gateways, g)
		}
		if json.Unmarshal(text, &v) == nil {
			v.Metadata.Namespace, v.Spec.Gateways = "garden", []string{"nginx-ingress-controller"}
			facts.VirtualServices = append(facts.VirtualServices, v)
		}
		if json.Unmarshal(text, &s) == nil {
			s.Metadata.Namespace = "istio-ingress"
			facts.Services = append(facts.Services, s)
		}
		if json.Unmarshal(text, &p) == nil {
			p.Metadata.Namespace = "istio-ingress"
			facts.AuthorizationPolicies = append(facts.AuthorizationPolicies, p)
		}
		for _, enforcement := range istio.Enforcements() {
			w := gateway(enforcement)
			written, _ := istio.Plan(facts, w)
			if again, _ := istio.Plan(facts, w); len(again.Covered) != len(written.Covered) {
				t.Fatal("the same facts have two plans")
			}
		}
		istio.Coverage(facts, gateway(istio.Auto))
	})
}

func FuzzData(f *testing.F) {
	planned, _ := istio.Plan(seed(shoot("a", list("203.0.113.0/24"))), gateway(istio.Auto))
	for _, m := range planned.ConfigMaps {
		f.Add(m.Data["shoot--p--a.yaml"])
	}
	f.Fuzz(func(t *testing.T, text string) {
		facts := seed(shoot("a", list("203.0.113.0/24")))
		facts = facts.With(planned)
		for i := range facts.ConfigMaps {
			facts.ConfigMaps[i].Data = map[string]string{"x.yaml": text}
		}
		istio.Coverage(facts, gateway(istio.Auto))
	})
}
