// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"net/netip"
	"testing"

	"github.com/tombolo-io/tombolo/internal/access/policy"
)

const (
	router = "spiffe://tombolo.internal/cluster/c1/route/backup"
	kas    = "spiffe://tombolo.internal/cluster/c1/client/kas"
	agent  = "spiffe://tombolo.internal/cluster/c1/agent/agent-1"
)

// TestFlowOf: the role in the certificate says which flow it is, and nothing that merely looks like it.
func TestFlowOf(t *testing.T) {
	for caller, want := range map[string]string{
		router: policy.FlowRoute, kas: policy.FlowDial, "": policy.FlowDial, "operator": policy.FlowDial,
		"unix:c1/connect": policy.FlowDial, "spiffe://d/edge/route": policy.FlowDial,
		"spiffe://tombolo.internal/cluster/c1/client/route": policy.FlowDial, agent: policy.FlowBack,
		"spiffe://tombolo.internal/cluster/c1/node/n1": policy.FlowDial, "spiffe://tombolo.internal/cluster/c1/client/agent": policy.FlowDial,
		"spiffe://tombolo.internal/cluster/c1/route/": policy.FlowDial,
	} {
		if got := policy.FlowOf(caller); got != want {
			t.Errorf("%q: %s", caller, got)
		}
	}
}

// TestRoutedDials: a rule without flows is about both, one with flows about those alone.
func TestRoutedDials(t *testing.T) {
	p, findings := policy.Read("p.yaml", []byte(`apiVersion: tombolo.dev/v1alpha1
kind: AccessPolicy
rules:
- {name: pods, clusters: [c1], allow: ["10.244.0.0/16"]}
- {name: routed, clusters: [c1], flows: [route], allow: ["10.245.0.0/16"]}
- {name: dialled, clusters: [c1], flows: [dial], allow: ["10.246.0.0/16"]}
- {name: not-the-database, deny: ["10.244.7.0/24"]}
- {name: not-routed, flows: [route], deny: ["10.244.8.0/24"]}
`), nil)
	if p == nil {
		t.Fatal(findings)
	}
	for to, want := range map[string][2]bool{ // dial, route
		"10.244.1.1": {true, true}, "10.245.1.1": {false, true}, "10.246.1.1": {true, false}, "10.244.7.1": {false, false},
		"10.244.8.1": {true, false}, "10.247.1.1": {false, false},
	} {
		for i, caller := range []string{kas, router} {
			v := policy.Decide(policy.Request{
				Cluster: "c1", Caller: caller, Flow: policy.FlowOf(caller), Addr: netip.MustParseAddr(to), Port: 443,
			}, p)
			if v.Allow != want[i] {
				t.Errorf("%s to %s: %v, %s", caller, to, v.Allow, v.Why())
			}
		}
	}
	own, _ := policy.CompileAllow([]string{"10.244.0.0/16"})
	for _, flow := range []string{policy.FlowDial, policy.FlowRoute} {
		if v := policy.Decide(policy.Request{Flow: flow, Addr: netip.MustParseAddr("10.244.1.1"), Port: 443}, own); !v.Allow {
			t.Errorf("an agent's own list, flow %s: %s", flow, v.Why())
		}
	}
}
