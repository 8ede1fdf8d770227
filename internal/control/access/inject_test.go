// SPDX-License-Identifier: Apache-2.0

package access

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/access/istio"
	"github.com/tombolo-io/tombolo/internal/access/policy"
)

// foreign is an EnvoyFilter of somebody else that adds a chain into the cluster a, as the API server hands it over.
const foreign = `{"kind":"EnvoyFilter","metadata":{"name":"x","labels":{"l":"v"}},"spec":{"configPatches":[{"applyTo":"FILTER_CHAIN",
"match":{"context":"GATEWAY","listener":{"portNumber":8443}},"patch":{"operation":"ADD","value":{"filters":[
{"name":"tcp","typed_config":{"@type":"type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
"cluster":"outbound|443||kube-apiserver.shoot--p--a.svc.cluster.local"}}]}}}]}}`

// TestInjections: the webhook and the loop come to the same, and what one did is nothing to do for the other.
func TestInjections(t *testing.T) {
	gateways := []istio.Workload{{Namespace: "gw"}}
	a := istio.Cluster{Name: "a", Namespace: "shoot--p--a", Ways: []istio.Way{{Flow: "api", Hosts: []string{"api.a"},
		List: policy.SourceList{Protected: true, Allow: []policy.SourceEntry{{Prefix: netip.MustParsePrefix("192.0.2.0/24")}}}}}}
	free := a
	free.Ways = []istio.Way{{Flow: "api", Hosts: []string{"api.a"}}}
	if _, err := answer([]byte("{"), "gw", nil, gateways); err == nil {
		t.Error("an object that cannot be read is let through")
	}
	for _, c := range []struct {
		what, namespace string
		cluster         istio.Cluster
		guarded         bool
	}{
		{"a list", "gw", a, true}, {"the mesh's root namespace", "istio-system", a, true},
		{"no list", "gw", free, false}, {"another namespace", "elsewhere", a, false},
	} {
		data, err := answer([]byte(foreign), c.namespace, []istio.Cluster{c.cluster}, gateways)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(string(data), istio.GuardName("a")); got != c.guarded || !c.guarded && data != nil {
			t.Errorf("%s: %s", c.what, data)
		}
		var e istio.EnvoyFilter
		if err := json.Unmarshal([]byte(foreign), &e); err != nil {
			t.Fatal(err)
		}
		e.Metadata.Namespace = c.namespace
		facts := istio.Facts{EnvoyFilters: []istio.EnvoyFilter{e}, Clusters: []istio.Cluster{c.cluster}}
		found := istio.Injections(facts, nil, gateways...)
		if len(found) == 1 != c.guarded {
			t.Fatalf("%s: %v", c.what, found)
		}
		if !c.guarded {
			continue
		}
		of, err := patchOf(found[0], "7")
		if err != nil || !strings.HasPrefix(string(of), strings.TrimSuffix(string(data), "]")) ||
			!strings.Contains(string(of), `{"op":"replace","path":"/metadata/resourceVersion","value":"7"}`) {
			t.Errorf("%s: %s, %v", c.what, of, err)
		}
		facts.EnvoyFilters[0] = found[0].After
		if again := istio.Injections(facts, nil, gateways...); len(again) > 0 {
			t.Errorf("%s: %v", c.what, again)
		}
		facts.Clusters[0] = free
		stored, err := json.Marshal(found[0].After)
		if err != nil {
			t.Fatal(err)
		}
		if data, err := answer(stored, c.namespace, facts.Clusters, gateways); data != nil || err != nil {
			t.Errorf("%s: the webhook takes a guard out: %s, %v", c.what, data, err)
		}
		if gone := istio.Injections(facts, nil, gateways...); len(gone) != 1 || !gone[0].Loses || strings.Contains(
			string(gone[0].After.Spec.ConfigPatches[0].Patch.Value), "rbac") {
			t.Errorf("%s: the guard does not go: %v", c.what, gone)
		}
	}
}
