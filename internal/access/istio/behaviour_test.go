// SPDX-License-Identifier: Apache-2.0

package istio_test

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/access/istio"
	"github.com/tombolo-io/tombolo/internal/access/policy"
)

// snis are the server names that EnvoyFilters look for, with their ports.
func snis(p istio.Planned) (out []string) {
	for _, e := range p.EnvoyFilters {
		for _, c := range e.Spec.ConfigPatches {
			if m := c.Match.Listener; m.FilterChain != nil {
				out = append(out, m.FilterChain.SNI)
			}
		}
	}
	return out
}

// What Gardener's extension writes, and what is written here for the same.
func TestWhatTheExtensionWrites(t *testing.T) {
	w := gateway(istio.EnvoyFilters)
	l := list("203.0.113.0/24")
	has := func(p istio.Planned, text string) bool {
		raw, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(raw), text)
	}

	// Without a host nothing is found by name: the routes still lead to the cluster, and are guarded.
	c := shoot("a", l)
	f := seed(c)
	f.Clusters[0].Ways[0].Hosts, f.Clusters[0].Ways[3].Hosts = nil, nil
	p, problems := istio.Plan(f, w)
	if got := snis(p); len(got) != 1 || got[0] != "api.a.p.example.org" || len(problems) > 0 {
		t.Errorf("without hosts: %q, %v", got, problems)
	}

	// The seed's ingress: a guard for the shoot's names in the shared chain, and none without that gateway.
	f = seed(shoot("a", l))
	p, _ = istio.Plan(f, w)
	if !has(p, `"suffix":"-p--a.ingress.seed.example.org"`) {
		t.Error("there is no guard for the ingress")
	}
	f.Gateways = f.Gateways[:2]
	f.Gateways = append(f.Gateways, seed(shoot("a", l)).Gateways[3])
	if p, problems = istio.Plan(f, w); has(p, `"suffix":"-p--a.ingress`) || len(problems) > 0 {
		t.Errorf("there is a guard without an ingress: %v", problems)
	}

	// A hibernated shoot has no Gateway: no failure, not for others either, and its names are guarded in advance.
	f = seed(shoot("a", l), shoot("b", l))
	f.Gateways, f.VirtualServices = f.Gateways[:4], f.VirtualServices[:2]
	p, problems = istio.Plan(f, w)
	if u := istio.Coverage(f.With(p), w); len(problems)+len(u) > 0 {
		t.Errorf("hibernated: %v, %v", problems, u)
	}
	if got := strings.Join(snis(p), " "); !strings.Contains(got, "api.b.p.internal.example.org") {
		t.Errorf("hibernated: %s", got)
	}
	woken := seed(shoot("a", l), shoot("b", l)).With(p) // before the next plan
	for _, u := range istio.Coverage(woken, w) {
		if u.Kind != istio.Doubled {
			t.Errorf("woken: %v", u)
		}
	}

	// The platform's ranges are entries like others; each has its rule in what ext_authz reads.
	nodes := l
	nodes.Allow = append(nodes.Allow, policy.SourceEntry{Prefix: netip.MustParsePrefix("10.250.0.0/16"), Rule: "egress",
		Group: "platform"})
	p, _ = istio.Plan(seed(shoot("a", nodes)), gateway(istio.Auto))
	if !has(p, `"address_prefix":"10.250.0.0"`) || !has(p, `\"group\":\"platform\"`) {
		t.Error("the platform's ranges are not written")
	}

	// A gateway in another namespace: the objects are there.
	w.Namespace = "istio-ingress--zone-a"
	p, _ = istio.Plan(seed(shoot("a", l)), w)
	for _, e := range p.EnvoyFilters {
		if e.Metadata.Namespace != w.Namespace || e.Spec.WorkloadSelector.Labels["app"] != "istio-ingressgateway" {
			t.Errorf("%+v", e.Metadata)
		}
	}
}

// Ranges are written once, in order, without those that another one has; both families.
func TestRangesAreMinimal(t *testing.T) {
	f := seed(shoot("a", list("203.0.113.7/32", "2001:db8::/32", "203.0.113.0/24", "203.0.113.0/24", "2001:db8:1::/48")))
	p, _ := istio.Plan(f, gateway(istio.Policies))
	got := p.AuthorizationPolicies[0].Spec.Rules[0].From[0].Source.NotRemoteIPBlocks
	if strings.Join(got, " ") != "203.0.113.0/24 2001:db8::/32" {
		t.Errorf("%q", got)
	}
}

// A rule on headers has ports: at TCP chains Istio drops the headers, and the rule would deny everybody.
func TestHeaderRulesHavePorts(t *testing.T) {
	for _, enforcement := range []string{istio.Auto, istio.Policies, istio.ExtAuthz} {
		for _, complete := range []bool{false, true} {
			w := gateway(enforcement)
			w.Complete = complete
			p, _ := istio.Plan(seed(shoot("a", list("203.0.113.0/24"))), w)
			for _, a := range p.AuthorizationPolicies {
				for _, r := range a.Spec.Rules {
					byName := len(r.When) == 1 && r.When[0].Key == "connection.sni"
					if !byName && (len(r.To) != 1 || len(r.To[0].Operation.Ports) == 0) {
						t.Errorf("%s: %+v", a.Metadata.Name, r)
					}
				}
			}
		}
	}
}
