// SPDX-License-Identifier: Apache-2.0

//go:build kube

package access_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/access/istio"
)

// proxyFilter is an EnvoyFilter that adds a chain of its own, as Gardener's components write one for each shoot.
const proxyFilter = `apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: shoot--p--%[1]s, namespace: istio-ingress, annotations: {version: "%[2]s"}}
spec:
  workloadSelector: {labels: {app: gw}}
  configPatches:
  - applyTo: FILTER_CHAIN
    match: {context: GATEWAY, listener: {portNumber: 8443}}
    patch:
      operation: ADD
      value:
        name: shoot--p--%[1]s
        filter_chain_match: {destination_port: 443, prefix_ranges: [{address_prefix: 10.4.0.%[2]s, prefix_len: 32}]}
        filters:
        - name: envoy.filters.network.tcp_proxy
          typed_config:
            "@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy
            cluster: outbound|443||kube-apiserver.shoot--p--%[1]s.svc.cluster.local
            stat_prefix: x
`

// harmless adds no chain.
const harmless = `{apiVersion: networking.istio.io/v1alpha3, kind: EnvoyFilter,
  metadata: {name: harmless, namespace: istio-ingress}, spec: {configPatches: [
  {applyTo: LISTENER, match: {context: GATEWAY}, patch: {operation: MERGE, value: {per_connection_buffer_limit_bytes: %d}}}]}}
`

// TestGuardsInChainsOfOthers: an EnvoyFilter of somebody else that adds a chain into a cluster with a list is never
// stored without the guard, whatever changes: it, the list, or who leads.
func TestGuardsInChainsOfOthers(t *testing.T) {
	t.Parallel()
	x := start(t, fmt.Sprintf(gatewayConfig, istio.Auto))
	x.apply(t, shared+"---\n"+cluster("a")+cluster("b"))
	one, two := x.replica(t), x.replica(t)
	x.webhooks(t)
	x.apply(t, allows("a", "203.0.113.0/24"))
	x.settled(t, "a")
	guard := func(spec string, ranges ...string) string {
		if !strings.Contains(spec, istio.GuardName("a")) {
			return "there is no guard: " + spec
		}
		for _, r := range ranges {
			if !strings.Contains(spec, `"`+r+`"`) {
				return r + " is not in the guard: " + spec
			}
		}
		return ""
	}
	stored := func() string {
		return x.kube(t, "get", "envoyfilter", "-n", "istio-ingress", "shoot--p--a", "-o", "jsonpath={.spec}")
	}
	x.apply(t, fmt.Sprintf(proxyFilter, "a", "1"))
	if why := guard(stored(), "203.0.113.0"); why != "" {
		t.Fatal(why)
	}
	states := x.watch(t, "envoyfilter", "-n", "istio-ingress", "shoot--p--a")
	x.apply(t, fmt.Sprintf(proxyFilter, "b", "1"))
	if text := x.kube(t, "get", "envoyfilter", "-n", "istio-ingress", "shoot--p--b", "-o", "jsonpath={.spec}"); strings.Contains(
		text, "rbac") {
		t.Error("a cluster without a list has a guard:", text)
	}
	x.settled(t, "a")
	x.agree(t, "the chain has a guard", "istio-ingress", map[string][]string{"a": {office, lost}})

	edit := func(what string, r string) {
		t.Helper()
		x.apply(t, allows("a", r+"/24"))
		eventually(t, what, func() string { return guard(stored(), r) })
	}
	edit("an edit of the list", "198.51.100.0")
	for i, r := range []*replica{one, two} { // whichever leads
		r.kill()
		x.apply(t, fmt.Sprintf(proxyFilter, "a", fmt.Sprint(2+i))) // its owner writes it again, without a guard
		if why := guard(stored(), "198.51.100.0"); why != "" {
			t.Fatal(why)
		}
		r = x.replica(t)
		edit("the next leader", "192.0.2.0")
		edit("and back", "198.51.100.0")
		if i == 0 {
			one = r
		} else {
			two = r
		}
	}
	seen := 0
	for done := false; !done; {
		select {
		case spec := <-states:
			seen++
			if why := guard(spec); why != "" {
				t.Error("a state without a guard:", why)
			}
		default:
			done = true
		}
	}
	if seen < 5 {
		t.Errorf("%d states were seen", seen)
	}

	x.apply(t, fmt.Sprintf(harmless, 1))
	one.kill()
	two.kill()
	if out, err := run(t, fmt.Sprintf(proxyFilter, "a", "9"), x.kubectl, "--kubeconfig", x.kubeconfig, "apply",
		"--server-side", "--force-conflicts", "-f", "-"); err == nil || !strings.Contains(err.Error(), "envoyfilter.tombolo.dev") {
		t.Errorf("without a webhook it is stored: %s, %v", out, err)
	}
	x.apply(t, fmt.Sprintf(harmless, 2)) // nobody is asked about it
	if why := guard(stored(), "198.51.100.0"); why != "" {
		t.Error(why)
	}
	x.replica(t)
	x.kube(t, "delete", "accesspolicy", "a")
	eventually(t, "the guard goes with the list", func() string {
		var spec istio.EnvoyFilterSpec
		if err := json.Unmarshal([]byte(stored()), &spec); err != nil {
			return err.Error()
		}
		if text := string(spec.ConfigPatches[0].Patch.Value); strings.Contains(text, "rbac") || !strings.Contains(text, "tcp_proxy") {
			return text
		}
		return ""
	})
}
