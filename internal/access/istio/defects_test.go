// SPDX-License-Identifier: Apache-2.0

package istio_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/access/istio"
	"github.com/tombolo-io/tombolo/internal/access/policy"
)

// decided is what the objects of a gateway decide.
func decided(t *testing.T, f istio.Facts, w istio.Workload, q istio.Question) bool {
	t.Helper()
	got := istio.Decide(f, w, q)
	allow, same := got.Verdict()
	if !same || len(got.Ways) == 0 {
		t.Errorf("%+v: %+v", q, got)
	}
	return allow
}

// A list that denies truly denies in every flow, and who is not denied passes.
func TestDenyDeniesInEveryFlow(t *testing.T) {
	f := seed(shoot("a", denyOnly("!198.51.100.0/24", "!2001:db8:1::/48")))
	for _, enforcement := range []string{istio.Auto, istio.EnvoyFilters, istio.Policies} {
		w := gateway(enforcement)
		written, _ := istio.Plan(f, w)
		for _, flow := range policy.EdgeFlows() {
			for from, want := range map[string]bool{"198.51.100.9": false, "2001:db8:1::9": false, "192.0.2.1": true, "2001:db8::1": true} {
				q := istio.Question{Cluster: "shoot--p--a", Flow: flow, Source: netip.MustParseAddr(from)}
				if got := decided(t, f.With(written), w, q); got != want {
					t.Errorf("%s: %s from %s: %v", enforcement, flow, from, got)
				}
			}
		}
	}
}

// A filter that looks for a listener by its name is no guard: an IPv6-first gateway has another name.
func TestListenerNamesAreNoMatch(t *testing.T) {
	f := seed(shoot("a", list("203.0.113.0/24")))
	w := gateway(istio.EnvoyFilters)
	written, _ := istio.Plan(f, w)
	if text, _ := json.Marshal(written); strings.Contains(string(text), "0.0.0.0_") {
		t.Error("a listener is named")
	}
	for i := range written.EnvoyFilters {
		for j := range written.EnvoyFilters[i].Spec.ConfigPatches {
			p := &written.EnvoyFilters[i].Spec.ConfigPatches[j]
			p.Match.Listener = &istio.ListenerMatch{Name: fmt.Sprintf("0.0.0.0_%d", p.Match.Listener.PortNumber)}
		}
	}
	for _, u := range istio.Coverage(f.With(written), w) {
		if u.Kind == istio.Unknown {
			return
		}
	}
	t.Error("filters that may hit nothing are taken for guards")
}

// A filter that hits nothing is reported, for each of the ways that an object can miss.
func TestAMissIsReported(t *testing.T) {
	f := seed(shoot("a", list("203.0.113.0/24")))
	w := gateway(istio.Auto)
	w.Provider = ""
	for what, spoil := range map[string]func(*istio.EnvoyFilter){
		"another port":      func(e *istio.EnvoyFilter) { e.Spec.ConfigPatches[0].Match.Listener.PortNumber++ },
		"another namespace": func(e *istio.EnvoyFilter) { e.Metadata.Namespace = "other" },
		"another workload":  func(e *istio.EnvoyFilter) { e.Spec.WorkloadSelector.Labels = map[string]string{"app": "x"} },
		"a sidecar":         func(e *istio.EnvoyFilter) { e.Spec.ConfigPatches[0].Match.Context = "SIDECAR_INBOUND" },
		"after all others":  func(e *istio.EnvoyFilter) { e.Spec.ConfigPatches[0].Patch.Operation = "ADD" },
		"another kind":      func(e *istio.EnvoyFilter) { e.Spec.ConfigPatches[0].ApplyTo = "LISTENER_FILTER" },
		"no rules": func(e *istio.EnvoyFilter) {
			e.Spec.ConfigPatches[0].Patch.Value = json.RawMessage(`{"name":"tombolo-access-x"}`)
		},
		"an unknown condition": func(e *istio.EnvoyFilter) {
			v := &e.Spec.ConfigPatches[0].Patch.Value
			*v = json.RawMessage(strings.ReplaceAll(string(*v), `"remote_ip"`, `"filter_state"`))
		},
	} {
		for i := range 3 { // of the API, of each CONNECT port
			written, _ := istio.Plan(f, w)
			spoil(&written.EnvoyFilters[i])
			if len(istio.Coverage(f.With(written), w)) == 0 {
				t.Errorf("%s: %s is still taken for a guard", what, written.EnvoyFilters[i].Metadata.Name)
			}
		}
	}
}

// The wildcard host of a gateway that ends TLS is a chain of its own.
func TestBothChainsOfATerminatingGateway(t *testing.T) {
	f := seed(shoot("a", list("203.0.113.0/24")))
	ns := "shoot--p--a"
	host := "api-a.seed.example.org"
	simple := &istio.ServerTLS{Mode: "SIMPLE"}
	f.Gateways = append(f.Gateways, server(ns, "wild", gateway("").Labels, istio.Server{Hosts: []string{host},
		Port: istio.Port{Name: "tls", Number: 443, Protocol: "HTTPS"}, TLS: simple}))
	f.VirtualServices = append(f.VirtualServices, istio.VirtualService{Metadata: meta(ns, "wild"), Spec: istio.VirtualServiceSpec{
		Hosts: []string{host}, Gateways: []string{"wild"},
		HTTP: []istio.HTTPRoute{{Route: []istio.Route{{Destination: istio.Destination{Host: "kube-apiserver"}}}}}}})
	w := gateway(istio.Auto)
	written, problems := istio.Plan(f, w)
	var snis []string
	for _, p := range written.EnvoyFilters[0].Spec.ConfigPatches {
		snis = append(snis, p.Match.Listener.FilterChain.SNI)
	}
	if want := []string{"*.ingress.seed.example.org", host, "api.a.p.example.org"}; !slices.Equal(snis, want) || len(problems) > 0 {
		t.Errorf("%q, %v", snis, problems)
	}
}

// onConnect is what the guards of the CONNECT ports decide of a request: the RBAC is read anew, as Envoy would.
func onConnect(t *testing.T, p istio.Planned, from string, headers map[string]string) bool {
	t.Helper()
	rules := 0
	for _, e := range p.EnvoyFilters {
		if !strings.HasPrefix(e.Metadata.Name, "tombolo-connect-8132") {
			continue
		}
		var f struct {
			TypedConfig istio.RBAC `json:"typed_config"`
		}
		if err := json.Unmarshal(e.Spec.ConfigPatches[0].Patch.Value, &f); err != nil || f.TypedConfig.Rules.Action != "DENY" {
			t.Fatal(err, f)
		}
		for _, r := range f.TypedConfig.Rules.Policies {
			rules++
			if slices.ContainsFunc(r.Permissions, func(p istio.Permission) bool { return asks(p, headers) }) &&
				slices.ContainsFunc(r.Principals, func(p istio.Principal) bool { return is(p, netip.MustParseAddr(from)) }) {
				return false
			}
		}
	}
	if rules == 0 {
		t.Fatal("no rule")
	}
	return true
}

func asks(p istio.Permission, headers map[string]string) bool {
	switch {
	case p.AndRules != nil:
		return !slices.ContainsFunc(p.AndRules.Rules, func(p istio.Permission) bool { return !asks(p, headers) })
	case p.OrRules != nil:
		return slices.ContainsFunc(p.OrRules.Rules, func(p istio.Permission) bool { return asks(p, headers) })
	case p.NotRule != nil:
		return !asks(*p.NotRule, headers)
	}
	v, ok := headers[p.Header.Name]
	m := p.Header.StringMatch
	return ok && (m.Exact != nil && v == *m.Exact || m.Suffix != nil && strings.HasSuffix(v, *m.Suffix) ||
		m.Contains != nil && strings.Contains(v, *m.Contains))
}

func is(p istio.Principal, a netip.Addr) bool {
	switch {
	case p.NotID != nil:
		return !is(*p.NotID, a)
	case p.OrIDs != nil:
		return slices.ContainsFunc(p.OrIDs.IDs, func(p istio.Principal) bool { return is(p, a) })
	case p.Any:
		return true
	}
	return netip.MustParsePrefix(fmt.Sprintf("%s/%d", p.RemoteIP.AddressPrefix, p.RemoteIP.PrefixLen)).Contains(a)
}

// Destinations are matched exactly, unknown forms and repeated headers are refused, names that begin like others and
// clusters without a list are untouched.
func TestConnectHeaders(t *testing.T) {
	f := seed(shoot("foo", list("203.0.113.0/24")), shoot("foo-bar", policy.SourceList{}), shoot("b", list("198.51.100.0/24")))
	written, _ := istio.Plan(f, gateway(istio.EnvoyFilters))
	api := func(shoot string) string {
		return "outbound|443||kube-apiserver.shoot--p--" + shoot + ".svc.cluster.local"
	}
	for _, header := range []string{"reversed-vpn", "x-gardener-destination"} {
		for value, want := range map[string][2]bool{ // from foo's range, from b's
			api("foo"):     {true, false},
			api("foo-bar"): {true, true},
			"":             {true, true},
			"outbound|1194||vpn-seed-server.shoot--p--foo.svc.cluster.local":   {true, false},
			"shoot--p--foo--kube-apiserver-socket":                             {true, false},
			"shoot--p--foo-bar--kube-apiserver-socket":                         {true, true},
			"outbound|8080||prometheus.shoot--p--foo.svc.cluster.local":        {false, false},
			"outbound|443|v1|kube-apiserver.shoot--p--foo.svc.cluster.local":   {false, false},
			"outbound_.443_._.kube-apiserver.shoot--p--foo.svc.cluster.local":  {false, false},
			"outbound|443||kube-apiserver.shoot--p--unknown.svc.cluster.local": {true, true},
			api("foo") + "," + api("foo-bar"):                                  {false, false},
			api("foo-bar") + "," + api("foo"):                                  {false, false},
		} {
			for i, from := range []string{"203.0.113.1", "198.51.100.1"} {
				if got := onConnect(t, written, from, map[string]string{header: value}); got != want[i] {
					t.Errorf("%s: %s from %s: %v", header, value, from, got)
				}
			}
		}
	}
	// Both headers: each names a cluster, and both have to admit the client.
	both := map[string]string{"reversed-vpn": api("b"), "x-gardener-destination": api("foo")}
	if onConnect(t, written, "203.0.113.1", both) || onConnect(t, written, "198.51.100.1", both) {
		t.Error("the header of one cluster opens another one")
	}
}

// An edit of one cluster's list touches its own entry, and nothing else.
func TestAnEditTouchesOneEntry(t *testing.T) {
	lists := map[string]policy.SourceList{"a": list("203.0.113.0/24"), "b": list("203.0.113.0/24"), "foo-a": list("192.0.2.0/24")}
	entries := func(enforcement string) map[string]string {
		var shoots []istio.Cluster
		for _, name := range []string{"a", "b", "foo-a"} {
			shoots = append(shoots, shoot(name, lists[name]))
		}
		p, _ := istio.Plan(seed(shoots...), gateway(enforcement))
		out := map[string]string{}
		put := func(k string, v any) {
			text, _ := json.Marshal(v)
			out[k] = string(text)
		}
		for _, e := range p.EnvoyFilters {
			for i, c := range e.Spec.ConfigPatches {
				var f struct {
					TypedConfig istio.RBAC `json:"typed_config"`
				}
				if err := json.Unmarshal(c.Patch.Value, &f); err != nil {
					t.Fatal(err)
				}
				for name, r := range f.TypedConfig.Rules.Policies {
					put(fmt.Sprintf("%s %d %s", e.Metadata.Name, i, name), r)
				}
				c.Patch.Value = nil
				put(fmt.Sprintf("%s %d", e.Metadata.Name, i), c)
			}
		}
		for _, a := range p.AuthorizationPolicies {
			put(a.Metadata.Name, a)
		}
		for _, m := range p.ConfigMaps {
			for k, v := range m.Data {
				put(m.Metadata.Name+" "+k, v)
			}
		}
		return out
	}
	for _, enforcement := range istio.Enforcements() {
		before := entries(enforcement)
		lists["b"] = list("198.51.100.0/24", "!198.51.100.7/32")
		after := entries(enforcement)
		lists["b"] = list("203.0.113.0/24")
		changed := 0
		for k, v := range after {
			if before[k] == v {
				continue
			}
			if changed++; !strings.Contains(k, "shoot--p--b") {
				t.Errorf("%s: %s changes", enforcement, k)
			}
		}
		if changed == 0 || len(before) != len(after) {
			t.Errorf("%s: %d entries change, %d become %d", enforcement, changed, len(before), len(after))
		}
	}
}

// 500 clusters with 60 ranges each: no object exceeds 512 KiB, and one more cluster does not move the others.
func TestSizes(t *testing.T) {
	for _, enforcement := range istio.Enforcements() {
		p, _ := istio.Plan(manyShoots(500), gateway(enforcement))
		next, _ := istio.Plan(manyShoots(501), gateway(enforcement))
		largest, shards := 0, 0
		for _, o := range p.EnvoyFilters {
			text, _ := json.Marshal(o)
			largest = max(largest, len(text))
			shards++
		}
		for _, o := range p.AuthorizationPolicies {
			text, _ := json.Marshal(o)
			largest = max(largest, len(text))
		}
		for _, o := range p.ConfigMaps {
			text, _ := json.Marshal(o)
			largest = max(largest, len(text))
		}
		if largest >= 512<<10 || largest == 0 {
			t.Errorf("%s: %d bytes", enforcement, largest)
		}
		writes := 0
		for _, s := range istio.Order(p, next) {
			writes += len(s.Write)
			if len(s.Remove) > 0 {
				t.Errorf("%s: one more cluster removes %v", enforcement, s.Remove)
			}
		}
		if writes > 4 {
			t.Errorf("%s: one more cluster writes %d objects", enforcement, writes)
		}
		t.Logf("%s: %d EnvoyFilters, the largest object has %d bytes, one more cluster writes %d", enforcement, shards, largest, writes)
	}
}

// A header that is there twice opens nothing, whatever form its first value has: Envoy joins the values before it
// compares, and routes by the first one.
func TestRepeatedHeaders(t *testing.T) {
	c := shoot("a", list("203.0.113.0/24"))
	c.Ways = c.Ways[:2]
	of := func(service, ns string) string { return "outbound|" + service + "." + ns + ".svc.cluster.local" }
	other := of("443||kube-apiserver", "shoot--p--other")
	for _, enforcement := range istio.Enforcements() {
		for _, complete := range []bool{false, true} {
			w := gateway(enforcement)
			w.Complete = complete
			knows := complete && (enforcement == istio.Auto || enforcement == istio.ExtAuthz) // who may be asked for
			p, _ := istio.Plan(seed(c), w)
			for value, want := range map[string]bool{
				of("1194||vpn-seed-server", c.Namespace) + ",x":        false, // listed
				of("1194||vpn-seed-server-4", c.Namespace) + ",x":      false, // not listed
				of("443||kube-apiserver", c.Namespace) + "," + other:   false,
				of("8080||prometheus", c.Namespace) + "," + other:      false,
				"shoot--p--a--kube-apiserver-socket,x":                 false,
				other + "," + of("1194||vpn-seed-server", c.Namespace): false,
				other + ",shoot--p--a--kube-apiserver-socket":          false,
				other: !knows,
				"shoot--p--b-shoot--p--a--kube-apiserver-socket": !knows,
			} {
				g := seed(c).With(p)
				g.Clusters = append(g.Clusters, istio.Cluster{Name: "probe", Namespace: "none", // by which it is asked
					Ways: []istio.Way{{Flow: policy.FlowVPN, Destinations: []string{value}}}})
				q := istio.Question{Cluster: "probe", Flow: policy.FlowVPN, Source: netip.MustParseAddr("192.0.2.1")}
				if got := decided(t, g, w, q); got != want {
					t.Errorf("%s, complete %v: %s: %v", enforcement, complete, value, got)
				}
			}
		}
	}
}

// A list for a wildcard host says nothing about other clusters with a name under it, before and after the host has a
// chain; of a name that nobody has it does.
func TestNarrowerHostsOfOthers(t *testing.T) {
	wide := istio.Cluster{Name: "wide", Namespace: "wide", Ways: []istio.Way{
		{Flow: "api", Hosts: []string{"*.p.example.org"}, List: list("192.0.2.0/24")}}}
	other := shoot("a", list("203.0.113.0/24"))
	open := shoot("b", policy.SourceList{})
	unnamed := istio.Cluster{Name: "c", Namespace: "shoot--p--c", Ways: []istio.Way{{Flow: "api"}}}
	for _, enforcement := range istio.Enforcements() {
		for _, awaited := range []bool{true, false} {
			w := gateway(enforcement)
			f := seed(other, open)
			for _, c := range []istio.Cluster{unnamed, wide} {
				host := append(c.Ways[0].Hosts, "api.c.p.example.org")[:1]
				if c.Name == "wide" && awaited {
					continue
				}
				f.Gateways = append(f.Gateways, server(c.Namespace, "kube-apiserver", w.Labels, istio.Server{Hosts: host,
					Port: istio.Port{Name: "tls", Number: 443, Protocol: "TLS"}, TLS: &istio.ServerTLS{Mode: "PASSTHROUGH"}}))
				f.VirtualServices = append(f.VirtualServices, tls(c.Namespace, "kube-apiserver",
					"kube-apiserver."+c.Namespace+".svc.cluster.local", host...))
			}
			f.Clusters = append(f.Clusters, unnamed, wide)
			p, _ := istio.Plan(f, w)
			g := f.With(p)
			if gaps := istio.Coverage(g, w, "wide", other.Name); len(gaps) > 0 && enforcement != istio.ExtAuthz {
				t.Errorf("%s, awaited %v: %v", enforcement, awaited, gaps)
			}
			for cluster, want := range map[string][2]bool{ // from the range of wide, from that of the other one
				other.Name: {false, true}, open.Name: {true, true}, unnamed.Name: {true, true}, "wide": {true, false},
			} {
				for i, from := range []string{"192.0.2.1", "203.0.113.1"} {
					q := istio.Question{Cluster: cluster, Flow: "api", Source: netip.MustParseAddr(from)}
					if cluster == "wide" && awaited {
						continue
					}
					if got := decided(t, g, w, q); got != want[i] {
						t.Errorf("%s, awaited %v: %s from %s: %v", enforcement, awaited, cluster, from, got)
					}
				}
			}
			if awaited { // the host gets its chain before the next plan
				f := seed(wide)
				f.Gateways[3].Spec.Servers[0].Hosts = wide.Ways[0].Hosts
				q := istio.Question{Cluster: "wide", Flow: "api", Source: netip.MustParseAddr("203.0.113.1")}
				if got := decided(t, f.With(p), w, q); got {
					t.Errorf("%s: the awaited host is open", enforcement)
				}
			}
		}
	}
}
