// SPDX-License-Identifier: Apache-2.0

//go:build pilot

package pilot

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/access/istio"
	"github.com/tombolo-io/tombolo/internal/access/policy"
)

const (
	inFoo  = "203.0.113.1" // in the range of foo
	inBar  = "198.51.100.1"
	nobody = "192.0.2.1"
)

// three are a cluster with a list, one whose name begins like it and that has none, and another with a list.
func three(w istio.Workload) istio.Facts {
	return seed(w, shoot("foo", listOf("203.0.113.0/24")), shoot("foo-bar", policy.SourceList{}),
		shoot("bar", listOf("198.51.100.0/24")))
}

func service(port, name, shoot string) string {
	return "outbound|" + port + "||" + name + ".shoot--p--" + shoot + ".svc.cluster.local"
}

func connect(port uint32, from string, headers map[string][]string) question {
	all := map[string][]string{":authority": {"x"}}
	for k, v := range headers {
		all[k] = v
	}
	return question{Port: port, From: from, Headers: all}
}

// planned are the facts with what is planned for them.
func planned(t *testing.T, f istio.Facts, w istio.Workload) istio.Facts {
	t.Helper()
	p, problems := istio.Plan(f, w)
	for _, problem := range problems {
		if w.Enforcement != istio.ExtAuthz || problem.Flow != policy.FlowIngress {
			t.Fatal(problem)
		}
	}
	return f.With(p)
}

// Destinations are compared exactly; unknown forms of a protected cluster and repeated headers are refused, whether
// Envoy joins the values or not; clusters without a list are open.
func TestHeadersAtCONNECTPorts(t *testing.T) {
	t.Parallel()
	o := start(t)
	for _, enforcement := range istio.Enforcements() {
		w := workload(enforcement, "")
		f := planned(t, three(w), w)
		var all []asked
		for _, h := range []string{"Reversed-VPN", "X-Gardener-Destination", "x-gardener-destination"} {
			for value, want := range map[string][2]bool{ // from foo's range, from bar's
				service("1194", "vpn-seed-server", "foo"):                           {true, false},
				service("443", "kube-apiserver", "foo"):                             {true, false},
				"shoot--p--foo--kube-apiserver-socket":                              {true, false},
				service("443", "kube-apiserver", "foo-bar"):                         {true, true},
				"shoot--p--foo-bar--kube-apiserver-socket":                          {true, true},
				service("443", "kube-apiserver", "bar"):                             {false, true},
				service("8080", "prometheus", "foo"):                                {false, false},
				"outbound|443|v1|kube-apiserver.shoot--p--foo.svc.cluster.local":    {false, false},
				"outbound_.443_._.kube-apiserver.shoot--p--foo.svc.cluster.local":   {false, false},
				service("443", "kube-apiserver", "unknown"):                         {true, true},
				service("443", "kube-apiserver", "foo") + "," + "something":         {false, false},
				service("443", "kube-apiserver", "foo") + "," + "shoot--p--foo-bar": {false, false},
			} {
				for i, from := range []string{inFoo, inBar} {
					for _, port := range w.ConnectPorts {
						all = append(all, asked{connect(port.Port, from, map[string][]string{h: {value}}), want[i], enforcement + " " + value, false})
					}
				}
			}
			for _, each := range []bool{false, true} {
				own, victim := service("443", "kube-apiserver", "foo"), service("443", "kube-apiserver", "bar")
				for _, values := range [][]string{{own, victim}, {victim, own}} {
					q := connect(vpnPort, inFoo, map[string][]string{h: values})
					q.Each = each
					all = append(all, asked{q, false, enforcement + " twice", false})
				}
				for _, first := range []string{service("1194", "vpn-seed-server-4", "bar"), service("8080", "prometheus", "bar"),
					"shoot--p--bar--kube-apiserver-socket"} { // not all are listed
					q := connect(vpnPort, inFoo, map[string][]string{h: {first, own}})
					q.Each = each
					all = append(all, asked{q, false, enforcement + " unlisted first", false})
				}
			}
		}
		both := map[string][]string{"Reversed-VPN": {service("443", "kube-apiserver", "bar")},
			"X-Gardener-Destination": {service("443", "kube-apiserver", "foo")}}
		all = append(all, asked{connect(vpnPort, inFoo, both), false, "both headers", false},
			asked{connect(proxyPort, inBar, both), false, "both headers", false},
			asked{connect(vpnPort, nobody, nil), true, "no header", true})
		o.judge(t, f, w, families()["IPv6 first"], all)
	}
}

// A list of one cluster says nothing about the TCP chains of others, whatever the form of its objects.
func TestOthersStayOpen(t *testing.T) {
	t.Parallel()
	o := start(t)
	for _, enforcement := range istio.Enforcements() {
		w := workload(enforcement, "")
		f := planned(t, three(w), w)
		var all []asked
		for name, want := range map[string]bool{"api.foo-bar.p.example.org": true, "gu-p--foo-bar.ingress.seed.example.org": true,
			"other.ingress.seed.example.org": true, "api.foo.p.example.org": false, "API.FOO.p.example.org": false,
			"api.bar.p.internal.example.org": false} {
			all = append(all, asked{question{Port: tlsPort, SNI: name, From: nobody}, want, enforcement + " " + name, false})
		}
		o.judge(t, f, w, families()["dual"], all)
		closed := seed(w, shoot("foo", policy.SourceList{Protected: true}), shoot("bar", policy.SourceList{}))
		closed = planned(t, closed, w)
		o.judge(t, closed, w, families()["IPv4 first"], flows(closed, w, netip.MustParseAddr(inFoo), netip.MustParseAddr("2001:db8::1")))
	}
}

// What Gardener's extension matches by is open on a gateway with IPv6 alone, and Coverage says so.
func TestListenerNamesMissIPv6(t *testing.T) {
	t.Parallel()
	o := start(t)
	w := workload(istio.EnvoyFilters, "")
	f := three(w)
	p, _ := istio.Plan(f, w)
	for i := range p.EnvoyFilters {
		for j := range p.EnvoyFilters[i].Spec.ConfigPatches {
			at := &p.EnvoyFilters[i].Spec.ConfigPatches[j].Match
			if at.Listener.FilterChain == nil {
				at.Listener = &istio.ListenerMatch{Name: fmt.Sprintf("0.0.0.0_%d", at.Listener.PortNumber)}
			}
		}
	}
	f = f.With(p)
	q := connect(vpnPort, nobody, map[string][]string{"Reversed-VPN": {service("1194", "vpn-seed-server", "foo")}})
	for family, open := range map[string]bool{"IPv4 first": false, "IPv6 first": false, "IPv6 only": true, "dual": false} {
		if r := o.ask(t, at(f, w, families()[family], q)); r.Answers[0].Allow != open {
			t.Errorf("%s: %+v", family, r.Answers[0])
		}
	}
	if len(istio.Coverage(f, w)) == 0 {
		t.Error("Coverage takes it for guarded")
	}
}

// added are EnvoyFilters of others that add a chain or a listener which leads to foo.
func added(w istio.Workload) map[string]istio.EnvoyFilter {
	to := `{"name":"envoy.filters.network.tcp_proxy","typed_config":{
		"@type":"type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
		"cluster":"` + service("443", "kube-apiserver", "foo") + `","stat_prefix":"x"}}`
	chain := filterOf(w, "shoot--p--foo", "FILTER_CHAIN", "ADD", `{"name":"shoot--p--foo","filter_chain_match":{"destination_port":443,
		"prefix_ranges":[{"address_prefix":"172.16.0.1","prefix_len":32}]},"filters":[`+to+`]}`)
	chain.Spec.ConfigPatches[0].Match.Listener = &istio.ListenerMatch{PortNumber: proxyPort}
	listener := filterOf(w, "own", "LISTENER", "ADD", `{"name":"own","address":{"socket_address":{"address":"0.0.0.0",
		"port_value":7443}},"filter_chains":[{"filters":[`+to+`]}]}`)
	return map[string]istio.EnvoyFilter{"a chain": chain, "a listener": listener}
}

// A socket by which the gateway comes to itself gets no guard: who is in no range is in no list. Who names it at a
// CONNECT port is judged there.
func TestSocketBehindACONNECTPort(t *testing.T) {
	t.Parallel()
	o := start(t)
	name := "shoot--p--foo--kube-apiserver-socket"
	listener := func(filters string) string {
		return `{"name":"` + name + `","address":{"pipe":{"path":"@foo"}},"filter_chains":[{"filters":[` + filters + `]}]}`
	}
	for _, enforcement := range istio.Enforcements() {
		w := workload(enforcement, "")
		f := three(w)
		to := `{"name":"envoy.filters.network.tcp_proxy","typed_config":{
			"@type":"type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
			"cluster":"` + service("443", "kube-apiserver", "foo") + `","stat_prefix":"x"}}`
		socket := filterOf(w, "shoot--p--foo-apiserver-proxy", "LISTENER", "ADD", listener(to))
		cluster := filterOf(w, "", "CLUSTER", "ADD", `{"name":"`+name+`","type":"STATIC","load_assignment":{"cluster_name":"x",
			"endpoints":[{"lb_endpoints":[{"endpoint":{"address":{"pipe":{"path":"@foo"}}}}]}]}}`)
		socket.Spec.ConfigPatches = append(socket.Spec.ConfigPatches, cluster.Spec.ConfigPatches...)
		if in, changed := istio.Inject(socket, f, w); changed {
			t.Errorf("%s: %s", enforcement, in.Spec.ConfigPatches[0].Patch.Value)
		}
		f.EnvoyFilters = append(f.EnvoyFilters, socket)
		f = planned(t, f, w)
		if gaps := istio.Coverage(f, w); len(gaps) > 0 && enforcement != istio.ExtAuthz {
			t.Errorf("%s: %v", enforcement, gaps)
		}
		all := []asked{{question{Listener: name}, true, enforcement + " the socket", false}}
		for from, want := range map[string]bool{inFoo: true, inBar: false, nobody: false} {
			for _, port := range w.ConnectPorts {
				q := connect(port.Port, from, map[string][]string{"X-Gardener-Destination": {name}})
				all = append(all, asked{q, want, enforcement + " from " + from, false})
			}
		}
		o.judge(t, f, w, families()["dual"], all)
	}
	w := workload(istio.EnvoyFilters, "") // a list there would refuse everybody
	guard := `{"name":"list","typed_config":{"@type":"type.googleapis.com/envoy.extensions.filters.network.rbac.v3.RBAC",
		"stat_prefix":"x","rules":{"policies":{"all":{"permissions":[{"any":true}],"principals":[{"or_ids":{"ids":[
		{"remote_ip":{"address_prefix":"0.0.0.0","prefix_len":0}},{"remote_ip":{"address_prefix":"::","prefix_len":0}}]}}]}}}}}`
	f := three(w)
	f.EnvoyFilters = append(f.EnvoyFilters, filterOf(w, "socket", "LISTENER", "ADD", listener(guard+`,
		{"name":"envoy.filters.network.tcp_proxy","typed_config":{
		"@type":"type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy","cluster":"x","stat_prefix":"x"}}`)))
	if r := o.ask(t, at(f, w, families()["dual"], question{Listener: name, From: inFoo})); r.Answers[0].Allow {
		t.Error("who comes through a pipe is in a range")
	}
}

// A chain that somebody's EnvoyFilter adds is reached by no other object: it is open until the guard is injected.
func TestAddedChains(t *testing.T) {
	t.Parallel()
	o := start(t)
	for _, enforcement := range istio.Enforcements() {
		w := workload(enforcement, "")
		for what, foreign := range added(w) {
			f := planned(t, three(w), w)
			ask := func(e istio.EnvoyFilter, from string) bool {
				g := f
				g.EnvoyFilters = append(append([]istio.EnvoyFilter(nil), f.EnvoyFilters...), e)
				q := question{Port: proxyPort, To: "172.16.0.1:443", From: from}
				if what == "a listener" {
					q = question{Port: 7443, From: from}
				}
				a := o.ask(t, at(g, w, families()["IPv6 first"], q)).Answers[0]
				if a.None || !strings.Contains(strings.Join(a.Leads, " "), "kube-apiserver.shoot--p--foo.") {
					t.Fatalf("%s: %+v", what, a)
				}
				if open := len(istio.Coverage(g, w)) > 0; open != a.Allow && from == nobody && !(enforcement == istio.ExtAuthz) {
					t.Errorf("%s: %s: Coverage says open: %v", enforcement, what, open)
				}
				return a.Allow
			}
			if !ask(foreign, nobody) {
				t.Errorf("%s: %s is guarded by itself", enforcement, what)
			}
			injected, changed := istio.Inject(foreign, f, w)
			if !changed || ask(injected, nobody) || ask(injected, inBar) || !ask(injected, inFoo) {
				t.Errorf("%s: %s is not guarded: %s", enforcement, what, injected.Spec.ConfigPatches[0].Patch.Value)
			}
		}
	}
}

// Both chains of a gateway that ends TLS are guarded, by the cluster's own name and by the wildcard's certificate.
func TestBothChainsOfATerminatingGateway(t *testing.T) {
	t.Parallel()
	o := start(t)
	for _, enforcement := range []string{istio.Auto, istio.EnvoyFilters, istio.Policies} {
		w := workload(enforcement, "")
		f := seed(w, shoot("foo", listOf("203.0.113.0/24")), shoot("foo-bar", policy.SourceList{}))
		own, wild := f.Clusters[0].Ways[0].Hosts, "api-p--foo.ingress.seed.example.org"
		f.Clusters[0].Ways[0].Hosts = append(own, wild)
		ns := f.Clusters[0].Namespace
		both := tlsServer(w, ns, "kube-apiserver", "SIMPLE", own...)
		both.Spec.Servers = append(both.Spec.Servers, tlsServer(w, ns, "", "SIMPLE", wild).Spec.Servers...)
		both.Spec.Servers[1].Port.Name = "wild"
		for i, g := range f.Gateways {
			if g.Metadata.Namespace == ns {
				f.Gateways[i] = both
			}
		}
		for i, v := range f.VirtualServices {
			if v.Metadata.Namespace == ns {
				f.VirtualServices[i] = httpRoute(ns, "kube-apiserver", "kube-apiserver", f.Clusters[0].Ways[0].Hosts...)
			}
		}
		for _, server := range []string{"tls", "wild"} { // a route that Gardener adds for clients with certificates
			e := filterOf(w, "termination-"+server, "HTTP_ROUTE", "INSERT_BEFORE", `{"match":{"prefix":"/","headers":[
				{"name":"x","present_match":true}]},"route":{"cluster":"`+service("443", "kube-apiserver-mtls", "foo")+`"}}`)
			e.Spec.ConfigPatches[0].Match.RouteConfiguration = &istio.RouteMatch{Name: "https.443." + server + ".kube-apiserver." + ns}
			f.EnvoyFilters = append(f.EnvoyFilters, e)
		}
		f = planned(t, f, w)
		if gaps := istio.Coverage(f, w); len(gaps) > 0 {
			t.Errorf("%s: %v", enforcement, gaps)
		}
		var all []asked
		for _, name := range f.Clusters[0].Ways[0].Hosts {
			for from, want := range map[string]bool{inFoo: true, nobody: false} {
				for _, authority := range []string{name, "other.example.org", name + ":443"} {
					q := question{Port: tlsPort, SNI: name, From: from, Headers: map[string][]string{":authority": {authority}}}
					all = append(all, asked{q, want, enforcement + " " + name, false})
				}
			}
		}
		r := o.judge(t, f, w, families()["IPv6 first"], all)
		chains := 0
		for _, l := range r.Listeners {
			for _, c := range l.Chains {
				if leads(c, "kube-apiserver."+ns+".svc") && leads(c, "kube-apiserver-mtls."+ns+".svc") {
					chains++
				}
			}
		}
		if chains != 2 {
			t.Errorf("%s: %d chains lead to it", enforcement, chains)
		}
	}
}

// Behind the PROXY protocol Envoy sees the port of the Service, not the one at which it listens.
func TestPortsBehindPROXYProtocol(t *testing.T) {
	t.Parallel()
	o := start(t)
	for _, enforcement := range istio.Enforcements() {
		for _, complete := range []bool{false, true} {
			w := workload(enforcement, "")
			w.Complete = complete
			f := seed(w, shoot("foo", listOf("203.0.113.0/24")))
			f.Services[0].Spec.Ports[1].Port = 1194
			f.Gateways[0].Spec.Servers[0].Port.Number = 1194
			f = planned(t, f, w)
			var all []asked
			for from, want := range map[string]bool{inFoo: true, nobody: false} {
				for _, to := range []string{"", "198.18.0.1:1194"} {
					q := connect(vpnPort, from, map[string][]string{"Reversed-VPN": {service("1194", "vpn-seed-server", "foo")}})
					q.To = to
					all = append(all, asked{q, want, enforcement + " to " + to, false})
				}
			}
			o.judge(t, f, w, families()["IPv4 only"], all)
		}
	}
}

// An edit of one cluster's list changes its own chain, and of a shared one its own entries.
func TestAnEditChangesTheClustersOwn(t *testing.T) {
	t.Parallel()
	o := start(t)
	for _, enforcement := range []string{istio.Auto, istio.EnvoyFilters} {
		w := workload(enforcement, "")
		dump := func(l policy.SourceList) reply {
			f := planned(t, seed(w, shoot("foo", l), shoot("foo-bar", listOf("192.0.2.0/24")), shoot("bar", listOf("198.51.100.0/24"))), w)
			v := at(f, w, families()["dual"])
			v.Dump = true
			return o.ask(t, v)
		}
		before, again := dump(listOf("203.0.113.0/24")), dump(listOf("203.0.113.0/24"))
		after := dump(listOf("203.0.113.0/25", "!203.0.113.7/32"))
		if diff := differences(t, before, again); len(diff) > 0 {
			t.Fatal("the same objects make two configurations: ", diff)
		}
		seen := map[string]bool{}
		for at, entries := range differences(t, before, after) {
			seen[at] = true
			for _, e := range entries {
				if !strings.Contains(e, "shoot--p--foo/") && !strings.Contains(e, "tombolo-access-shoot--p--foo ") {
					t.Errorf("%s: %s changes %s", enforcement, at, e)
				}
			}
		}
		want := []string{"0.0.0.0_9443 api.foo.p.example.org api.foo.p.internal.example.org", "0.0.0.0_9443 *.ingress.seed.example.org"}
		if enforcement == istio.EnvoyFilters {
			want = append(want, "0.0.0.0_8132 ", "0.0.0.0_8443 ")
		}
		for _, at := range want {
			if !seen[at] {
				t.Errorf("%s: %s does not change: %v", enforcement, at, seen)
			}
		}
		if len(seen) != len(want) {
			t.Errorf("%s: %v changes, want %q", enforcement, seen, want)
		}
	}
}

// differences are the chains that differ, with the entries in which they do: filters, and policies in them.
func differences(t *testing.T, before, after reply) map[string][]string {
	t.Helper()
	chains := func(r reply) map[string]map[string]string {
		out := map[string]map[string]string{}
		for _, l := range r.Listeners {
			for _, c := range l.Chains {
				entries := map[string]string{}
				var v any
				if err := json.Unmarshal(c.Dump, &v); err != nil {
					t.Fatal(err)
				}
				entries["rest"] = text(take(v, "", entries))
				out[l.Name+" "+strings.Join(c.Names, " ")] = entries
			}
		}
		return out
	}
	old, next, out := chains(before), chains(after), map[string][]string{}
	for at, entries := range next {
		for e, v := range entries {
			if old[at][e] != v {
				out[at] = append(out[at], e)
			}
		}
		for e := range old[at] {
			if _, there := entries[e]; !there {
				out[at] = append(out[at], e)
			}
		}
		delete(old, at)
	}
	for at := range old {
		out[at] = append(out[at], "all")
	}
	return out
}

// take moves the policies of RBAC filters out of a value: entries has them by filter and name.
func take(v any, filter string, entries map[string]string) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = take(v[i], filter, entries)
		}
	case map[string]any:
		if name, is := v["name"].(string); is {
			filter = name
		}
		for k, e := range v {
			if policies, is := e.(map[string]any); is && k == "policies" {
				for name, p := range policies {
					entries[filter+" "+name] = text(p)
				}
				delete(v, k)
				continue
			}
			v[k] = take(e, filter, entries)
		}
	}
	return v
}
