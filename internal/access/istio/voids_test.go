// SPDX-License-Identifier: Apache-2.0

package istio_test

import (
	"encoding/json"
	"testing"

	"github.com/tombolo-io/tombolo/internal/access/istio"
)

// removes is an EnvoyFilter of somebody else that takes a filter out.
func removes(applyTo string, at istio.FilterMatch) istio.EnvoyFilter {
	return istio.EnvoyFilter{Metadata: meta("istio-ingress", "foreign"), Spec: istio.EnvoyFilterSpec{
		Priority: 2000, ConfigPatches: []istio.ConfigPatch{{ApplyTo: applyTo, Patch: istio.Patch{Operation: "REMOVE"},
			Match: istio.PatchMatch{Listener: &istio.ListenerMatch{FilterChain: &istio.ChainMatch{Filter: &at}}}}}}}
}

// Who takes out the filters that AuthorizationPolicies become, takes out the guards: found by Istio's pilot.
func TestWhoRemovesFiltersOfIstioIsReported(t *testing.T) {
	network := removes("NETWORK_FILTER", istio.FilterMatch{Name: "envoy.filters.network.rbac"})
	http := removes("HTTP_FILTER", istio.FilterMatch{Name: "envoy.filters.network.http_connection_manager",
		SubFilter: &istio.FilterMatch{Name: "envoy.filters.http.rbac"}})
	f := seed(shoot("a", list("203.0.113.0/24")))
	for enforcement, gaps := range map[string]bool{istio.EnvoyFilters: false, istio.Policies: true} {
		w := gateway(enforcement)
		p, _ := istio.Plan(f, w)
		for _, foreign := range []istio.EnvoyFilter{network, http} {
			g := f.With(p)
			g.EnvoyFilters = append(g.EnvoyFilters, foreign)
			if u := istio.Coverage(g, w); (len(u) > 0) != gaps {
				t.Errorf("%s without %s: %v", enforcement, foreign.Spec.ConfigPatches[0].ApplyTo, u)
			}
		}
	}
}

// A guard that refuses everybody is no reason to overlook who takes it out: found by Istio's pilot.
func TestWhoRemovesAGuardThatRefusesAllIsReported(t *testing.T) {
	w := gateway(istio.EnvoyFilters)
	f := seed(shoot("a", list())) // nobody may
	p, _ := istio.Plan(f, w)
	ends := removes("NETWORK_FILTER", istio.FilterMatch{})
	ends.Spec.ConfigPatches[0].Match.Listener = &istio.ListenerMatch{PortNumber: 9443}
	ends.Spec.ConfigPatches[0].Patch = istio.Patch{Operation: "INSERT_FIRST", Value: json.RawMessage(`{"name":"x","typed_config":{
		"@type":"type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy"}}`)}
	for what, foreign := range map[string]istio.EnvoyFilter{
		"HTTP": removes("HTTP_FILTER", istio.FilterMatch{Name: "envoy.filters.network.http_connection_manager",
			SubFilter: &istio.FilterMatch{Name: "tombolo-access-connect-0"}}),
		"network":          removes("NETWORK_FILTER", istio.FilterMatch{Name: istio.GuardName("shoot--p--a")}),
		"before the guard": ends,
	} {
		g := f.With(p)
		g.EnvoyFilters = append(g.EnvoyFilters, foreign)
		if len(istio.Coverage(g, w)) == 0 {
			t.Errorf("%s: Coverage sees nothing", what)
		}
	}
}
