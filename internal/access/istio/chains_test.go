// SPDX-License-Identifier: Apache-2.0

package istio_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/access/istio"
	"github.com/tombolo-io/tombolo/internal/access/policy"
)

// told are the chains that lead to clusters, as texts.
func told(chains []istio.Chain) (out []string) {
	for _, c := range chains {
		for _, r := range c.Reaches {
			text := fmt.Sprintf("%s %d %s: %s/%s", c.Kind, c.Port, strings.Join(c.SNI, ","), r.Cluster, r.Flow)
			if len(r.Names) > 0 {
				text += " as " + strings.Join(r.Names, ",")
			}
			if c.Connect {
				text = "connect " + text
			}
			out = append(out, strings.ReplaceAll(text, " :", ":"))
		}
	}
	return out
}

// chainCase are objects, and the chains and problems that they make.
type chainCase struct {
	f        istio.Facts
	want     []string
	problems []string
}

func chainCases() (clusters []istio.Cluster, cases map[string]chainCase) {
	c := istio.Cluster{Name: "c", Namespace: "ns", Ways: []istio.Way{
		{Flow: "api", Hosts: []string{"api.c.example"}, List: list("203.0.113.0/24")}}}
	d := istio.Cluster{Name: "d", Namespace: "nd", Ways: []istio.Way{{Flow: "api", Hosts: []string{"api.d.example"}}}}
	selector := map[string]string{"app": "istio-ingressgateway"}
	pass := &istio.ServerTLS{Mode: "PASSTHROUGH"}
	port := func(number uint32, protocol string) istio.Port {
		return istio.Port{Name: "p", Number: number, Protocol: protocol}
	}
	gw := func(ns string, servers ...istio.Server) istio.Gateway { return server(ns, "gw", selector, servers...) }
	to := func(host string) []istio.Route { return []istio.Route{{Destination: istio.Destination{Host: host}}} }
	vs := func(ns string, hosts []string, spec istio.VirtualServiceSpec) istio.VirtualService {
		spec.Hosts = hosts
		if spec.Gateways == nil {
			spec.Gateways = []string{"gw"}
		}
		return istio.VirtualService{Metadata: meta(ns, "vs"), Spec: spec}
	}
	tlsTo := func(host string, match istio.L4Match) istio.VirtualServiceSpec {
		return istio.VirtualServiceSpec{TLS: []istio.L4Route{{Match: []istio.L4Match{match}, Route: to(host)}}}
	}
	httpTo := func(host string) istio.VirtualServiceSpec {
		return istio.VirtualServiceSpec{HTTP: []istio.HTTPRoute{{Route: to(host)}}}
	}
	service := func(ns, target string) istio.Service {
		return istio.Service{Metadata: meta(ns, "svc"), Spec: istio.ServiceSpec{Selector: selector,
			Ports: []istio.ServicePort{{Port: 443, TargetPort: json.RawMessage(target)}}}}
	}
	both := []string{"api.c.example", "other.c.example"}
	return []istio.Cluster{c, d}, map[string]chainCase{
		"a chain for each TLS match": {istio.Facts{
			Gateways: []istio.Gateway{gw("ns", istio.Server{Hosts: both, Port: port(9443, "TLS"), TLS: pass})},
			VirtualServices: []istio.VirtualService{vs("ns", both, istio.VirtualServiceSpec{TLS: []istio.L4Route{
				{Match: []istio.L4Match{{SNIHosts: both[:1]}, {SNIHosts: both[1:]}}, Route: to("kube-apiserver")},
				{Match: []istio.L4Match{{SNIHosts: both[:1], Port: 444}}, Route: to("kube-apiserver")},
				{Match: []istio.L4Match{{SNIHosts: []string{"x"}}}},
			}})}},
			[]string{"passthrough 9443 api.c.example: c/api", "passthrough 9443 other.c.example: c/api"}, nil},
		"the target port of the gateway's Service": {istio.Facts{
			Services:        []istio.Service{service("istio-ingress", "9443"), service("other", "1")},
			Gateways:        []istio.Gateway{gw("ns", istio.Server{Hosts: both, Port: port(443, "TLS"), TLS: pass})},
			VirtualServices: []istio.VirtualService{vs("ns", both, tlsTo("kube-apiserver.ns.svc.cluster.local", istio.L4Match{SNIHosts: both}))}},
			[]string{"passthrough 9443 api.c.example,other.c.example: c/api"}, nil},
		"a target port by its name": {istio.Facts{
			Services:        []istio.Service{service("istio-ingress", `"tls"`)},
			Gateways:        []istio.Gateway{gw("ns", istio.Server{Hosts: both, Port: port(443, "TLS"), TLS: pass})},
			VirtualServices: []istio.VirtualService{vs("ns", both, tlsTo("kube-apiserver", istio.L4Match{SNIHosts: both}))}},
			[]string{"passthrough 0 api.c.example,other.c.example: c/api"}, []string{"target port"}},
		"two target ports": {istio.Facts{
			Services:        []istio.Service{service("istio-ingress", "1443"), service("istio-ingress", "2443")},
			Gateways:        []istio.Gateway{gw("ns", istio.Server{Hosts: both[:1], Port: port(443, "TLS"), TLS: pass})},
			VirtualServices: []istio.VirtualService{vs("ns", both[:1], tlsTo("kube-apiserver", istio.L4Match{SNIHosts: both[:1]}))}},
			[]string{"passthrough 1443 api.c.example: c/api", "passthrough 2443 api.c.example: c/api"},
			[]string{"several target ports"}},
		"a terminating server is a chain": {istio.Facts{
			Gateways: []istio.Gateway{gw("ns",
				istio.Server{Hosts: both[:1], Port: port(9443, "HTTPS"), TLS: &istio.ServerTLS{Mode: "SIMPLE"}},
				istio.Server{Hosts: []string{"wild.seed.example"}, Port: port(9443, "HTTPS"), TLS: &istio.ServerTLS{Mode: "MUTUAL"}})},
			VirtualServices: []istio.VirtualService{vs("ns", []string{"api.c.example", "wild.seed.example"}, httpTo("kube-apiserver"))}},
			[]string{"https 9443 api.c.example: c/api", "https 9443 wild.seed.example: c/api"}, nil},
		"TLS ends, TCP goes on": {istio.Facts{
			Gateways: []istio.Gateway{gw("ns", istio.Server{Hosts: both[:1], Port: port(9443, "TLS"), TLS: &istio.ServerTLS{Mode: "SIMPLE"}})},
			VirtualServices: []istio.VirtualService{vs("ns", both[:1], istio.VirtualServiceSpec{
				TCP: []istio.L4Route{{Match: []istio.L4Match{{Port: 9443}}, Route: to("kube-apiserver")}}})}},
			[]string{"tls 9443 api.c.example: c/api"}, nil},
		"two clusters share the chain of requests": {istio.Facts{
			Gateways: []istio.Gateway{gw("ns", istio.Server{Hosts: []string{"*/*"}, Port: port(80, "HTTP")})},
			VirtualServices: []istio.VirtualService{
				vs("ns", []string{"web.c.example"}, httpTo("kube-apiserver")),
				vs("nd", []string{"web.d.example"}, istio.VirtualServiceSpec{Gateways: []string{"ns/gw"}, HTTP: httpTo("kube-apiserver").HTTP})}},
			[]string{"http 80 : c/api as web.c.example", "http 80 : d/api as web.d.example"}, nil},
		"a delegate": {istio.Facts{
			Gateways: []istio.Gateway{gw("ns", istio.Server{Hosts: []string{"*"}, Port: port(80, "HTTP")})},
			VirtualServices: []istio.VirtualService{
				vs("x", []string{"web.c.example"}, istio.VirtualServiceSpec{Gateways: []string{"gw.ns.svc.cluster.local"},
					HTTP: []istio.HTTPRoute{{Delegate: &istio.DelegateName{Name: "real", Namespace: "y"}}}}),
				{Metadata: meta("y", "real"), Spec: istio.VirtualServiceSpec{HTTP: httpTo("kube-apiserver.ns.svc.cluster.local").HTTP}}}},
			[]string{"http 80 : c/api as web.c.example"}, nil},
		"not bound, not the host, not the namespace, not the selector": {istio.Facts{
			Gateways: []istio.Gateway{gw("ns", istio.Server{Hosts: []string{"other/api.c.example", "./b.c.example"}, Port: port(9443, "TLS"), TLS: pass}),
				server("ns", "gw2", map[string]string{"app": "x"}, istio.Server{Hosts: both, Port: port(9443, "TLS"), TLS: pass})},
			VirtualServices: []istio.VirtualService{vs("ns", both, tlsTo("kube-apiserver", istio.L4Match{SNIHosts: both})),
				vs("nd", []string{"b.c.example"}, tlsTo("kube-apiserver.ns.svc.cluster.local", istio.L4Match{SNIHosts: []string{"b.c.example"}}))}},
			nil, nil},
		"one name twice": {istio.Facts{
			Gateways: []istio.Gateway{gw("ns", istio.Server{Hosts: both[:1], Port: port(9443, "TLS"), TLS: pass}),
				gw("nd", istio.Server{Hosts: both[:1], Port: port(9443, "TLS"), TLS: pass})},
			VirtualServices: []istio.VirtualService{vs("ns", both[:1], tlsTo("kube-apiserver", istio.L4Match{SNIHosts: both[:1]})),
				vs("nd", both[:1], tlsTo("kube-apiserver", istio.L4Match{SNIHosts: both[:1]}))}},
			[]string{"passthrough 9443 api.c.example: d/api", "passthrough 9443 api.c.example: c/api"}, []string{"Istio takes the older one"}},
		"AUTO_PASSTHROUGH": {istio.Facts{
			Gateways: []istio.Gateway{gw("ns", istio.Server{Hosts: []string{"*.local"}, Port: port(15443, "TLS"),
				TLS: &istio.ServerTLS{Mode: "AUTO_PASSTHROUGH"}})}},
			[]string{"automatic 15443 : c/api as *.ns.svc.cluster.local", "automatic 15443 : d/api as *.nd.svc.cluster.local"}, nil},
		"a redirection": {istio.Facts{
			Gateways:        []istio.Gateway{gw("ns", istio.Server{Hosts: []string{"*"}, Port: port(80, "HTTP"), TLS: &istio.ServerTLS{HTTPSRedirect: true}})},
			VirtualServices: []istio.VirtualService{vs("ns", both, httpTo("kube-apiserver"))}}, nil, nil},
		"routes that others patch": {istio.Facts{EnvoyFilters: []istio.EnvoyFilter{adds("HTTP_ROUTE",
			`{"route":{"cluster":"outbound|443||kube-apiserver.ns.svc.cluster.local"}}`)}}, nil, []string{"leads to the cluster"}},
	}
}

func TestChains(t *testing.T) {
	clusters, cases := chainCases()
	for name, x := range cases {
		t.Run(name, func(t *testing.T) {
			x.f.Clusters = clusters
			chains, problems := istio.Chains(x.f, gateway(istio.Auto))
			got := told(chains)
			slices.Sort(got)
			for i := range x.want {
				x.want[i] = strings.ReplaceAll(x.want[i], " :", ":")
			}
			slices.Sort(x.want)
			if !slices.Equal(got, x.want) {
				t.Errorf("%q", got)
			}
			if len(problems) != len(x.problems) {
				t.Fatalf("%v", problems)
			}
			for i, p := range problems {
				if !strings.Contains(p.String(), x.problems[i]) {
					t.Errorf("%v", p)
				}
			}
		})
	}
}

func TestEveryListedWayHasOneGuardOrIsReported(t *testing.T) {
	for _, enforcement := range []string{istio.Auto, istio.EnvoyFilters, istio.Policies} {
		w := gateway(enforcement)
		f := seed(shoot("a", list("203.0.113.0/24")), shoot("b", policy.SourceList{}))
		selector := w.Labels
		ns := "shoot--p--a"
		f.Gateways = append(f.Gateways,
			server(ns, "auto", selector, istio.Server{Hosts: []string{"*.local"}, Port: istio.Port{Number: 15443, Protocol: "TLS"},
				TLS: &istio.ServerTLS{Mode: "AUTO_PASSTHROUGH"}}),
			server(ns, "tcp", selector, istio.Server{Hosts: []string{"*"}, Port: istio.Port{Number: 7443, Protocol: "TCP"}}),
			server(ns, "metrics", selector, istio.Server{Hosts: []string{"metrics.example.org"}, Port: istio.Port{Number: 80, Protocol: "HTTP"}}))
		f.VirtualServices = append(f.VirtualServices,
			istio.VirtualService{Metadata: meta(ns, "tcp"), Spec: istio.VirtualServiceSpec{Hosts: []string{"*"}, Gateways: []string{"tcp"},
				TCP: []istio.L4Route{{Route: []istio.Route{{Destination: istio.Destination{Host: "kube-apiserver"}}}}}}},
			istio.VirtualService{Metadata: meta(ns, "metrics"), Spec: istio.VirtualServiceSpec{Hosts: []string{"metrics.example.org"},
				Gateways: []string{"metrics"}, HTTP: []istio.HTTPRoute{{Route: []istio.Route{{Destination: istio.Destination{Host: "prometheus"}}}}}}})
		f.Services = append(f.Services, istio.Service{Metadata: meta(ns, "kube-apiserver"), Spec: istio.ServiceSpec{Type: "LoadBalancer"}})
		f.EnvoyFilters = append(f.EnvoyFilters, adds("LISTENER", ownListener))
		written, problems := istio.Plan(f, w)
		got := map[string]bool{}
		for _, u := range istio.Coverage(f.With(written), w) {
			got[strings.Fields(u.Way)[0]] = true
			if u.Cluster != ns {
				t.Errorf("%s: %v", enforcement, u)
			}
		}
		for _, way := range []string{"automatic", "added", "Service"} {
			if !got[way] || len(got) != 3 {
				t.Errorf("%s: %v is reported, not %s", enforcement, got, way)
			}
		}
		if len(problems) == 0 {
			t.Error("Plan has no problem")
		}
		for _, c := range written.Covered {
			if c.By == "" && c.Why == "" {
				t.Errorf("%v", c)
			}
		}
	}
}

func TestStrays(t *testing.T) {
	f := seed(shoot("a", list("203.0.113.0/24")), shoot("b", policy.SourceList{}))
	if got := istio.Strays(f, gateway("")); len(got) > 0 {
		t.Error(got)
	}
	other := gateway("")
	other.Labels = map[string]string{"app": "other"}
	got := istio.Strays(f, other)
	if len(got) == 0 || slices.ContainsFunc(got, func(u istio.Uncovered) bool { return u.Cluster != "shoot--p--a" }) {
		t.Error(got)
	}
}

// Ways beside those that Gateways, VirtualServices and EnvoyFilters show as such.
func TestWaysBeside(t *testing.T) {
	route := func(f *istio.Facts, host, to string) {
		pass := &istio.ServerTLS{Mode: "PASSTHROUGH"}
		f.Gateways = append(f.Gateways, server("x", "alias", gateway("").Labels, istio.Server{Hosts: []string{host},
			Port: istio.Port{Name: "tls", Number: 443, Protocol: "TLS"}, TLS: pass}))
		f.VirtualServices = append(f.VirtualServices, tls("x", "alias", to, host))
	}
	api := istio.Service{Metadata: meta("shoot--p--a", "kube-apiserver")}
	ours := func(ns string) istio.EnvoyFilter {
		e := adds("FILTER_CHAIN", apiserverProxy)
		e.Metadata = istio.Meta{Namespace: ns, Name: "tombolo-x", Labels: map[string]string{istio.LabelManagedBy: istio.ManagedBy}}
		return e
	}
	for what, x := range map[string]struct {
		change func(f *istio.Facts)
		gap    string // in the way
	}{
		"a Service with an address from outside": {func(f *istio.Facts) {
			api.Spec = istio.ServiceSpec{Type: "ClusterIP", ExternalIPs: []string{"198.51.100.1"}}
			f.Services = append(f.Services, api)
		}, "Service shoot--p--a/kube-apiserver"},
		"a Service without one": {func(f *istio.Facts) {
			api.Spec = istio.ServiceSpec{Type: "ClusterIP"}
			f.Services = append(f.Services, api)
		}, ""},
		"a host of a ServiceEntry": {func(f *istio.Facts) {
			route(f, "alias.example.org", "kube.alias.internal")
		}, "VirtualService x/alias"},
		"a name of the cluster that leads to a ServiceEntry": {func(f *istio.Facts) {
			route(f, "gu-p--a.ingress.seed.example.org", "kube.alias.internal")
		}, ""},
		"a Service of somebody else": {func(f *istio.Facts) {
			route(f, "alias.example.org", "web.other.svc.cluster.local")
		}, ""},
		"an object with our label, in the namespace of the mesh": {func(f *istio.Facts) {
			f.EnvoyFilters = append(f.EnvoyFilters, ours("istio-system"))
		}, "added chain"},
	} {
		for _, enforcement := range []string{istio.Auto, istio.EnvoyFilters, istio.Policies} {
			w := gateway(enforcement)
			f := seed(shoot("a", list("203.0.113.0/24")), shoot("b", policy.SourceList{}))
			p, _ := istio.Plan(f, w)
			f = f.With(p)
			x.change(&f)
			p, _ = istio.Plan(f, w)
			f.EnvoyFilters = append(f.EnvoyFilters, p.EnvoyFilters...)
			f.AuthorizationPolicies = p.AuthorizationPolicies
			gaps := slices.DeleteFunc(istio.Coverage(f, w), func(u istio.Uncovered) bool { return u.Kind == istio.Doubled })
			if x.gap == "" && len(gaps) > 0 || x.gap != "" && (len(gaps) != 1 || !strings.HasPrefix(gaps[0].Way, x.gap) ||
				gaps[0].Cluster != "shoot--p--a") {
				t.Errorf("%s: %s: %v", enforcement, what, gaps)
			}
		}
	}
	f := seed(shoot("a", list("203.0.113.0/24")))
	f.EnvoyFilters = []istio.EnvoyFilter{ours("istio-system"), ours("istio-ingress"), ours("istio-former")}
	in := istio.Injections(f, []string{"istio-former"}, gateway(""))
	if len(in) != 1 || in[0].Before.Metadata.Namespace != "istio-system" {
		t.Errorf("%v", in)
	}
}

// The pods of a gateway are found from the Gateways and Services: what is written into another namespace, or for other
// labels, guards nothing.
func TestPodsThatAreNoGateway(t *testing.T) {
	both := map[string]string{"app": "istio-ingressgateway", "istio": "ingressgateway"}
	second := func(f *istio.Facts, ns string, selector map[string]string) {
		s := f.Services[0]
		s.Metadata.Namespace, s.Spec.Selector = ns, selector
		f.Services = append(f.Services, s)
	}
	for what, x := range map[string]struct {
		change       func(f *istio.Facts, w *istio.Workload)
		gaps, strays bool
	}{
		"as it is":          {func(*istio.Facts, *istio.Workload) {}, false, false},
		"another namespace": {func(_ *istio.Facts, w *istio.Workload) { w.Namespace = "istio-old" }, true, true},
		"a second gateway of these labels": {func(f *istio.Facts, _ *istio.Workload) {
			second(f, "istio-ingress-2", f.Services[0].Spec.Selector)
		}, false, true},
		"a second gateway of more labels": {func(f *istio.Facts, _ *istio.Workload) {
			second(f, "istio-ingress-2", both)
		}, false, true},
		"a second gateway of other labels": {func(f *istio.Facts, _ *istio.Workload) {
			second(f, "istio-ingress-2", map[string]string{"app": "other"})
		}, false, false},
		"pods that no label selects": {func(f *istio.Facts, _ *istio.Workload) {
			second(f, "shoot--p--a", nil)
			f.Gateways = append(f.Gateways, server("x", "of-all", nil))
			second(f, "shoot--p--a", map[string]string{"app": "kubernetes"})
			f.Services[1].Spec.Type, f.Services[2].Spec.Type = "", ""
		}, false, false},
		"a second Service of the gateway": {func(f *istio.Facts, _ *istio.Workload) {
			second(f, "istio-ingress", map[string]string{"app": "istio-ingressgateway", "version": "1"})
		}, false, false},
		"a label with an error": {func(f *istio.Facts, w *istio.Workload) {
			w.Labels = map[string]string{"app": "istio-ingressgateway", "istio": "ingresgateway"}
			f.Services[0].Spec.Selector = both
		}, true, true},
		"a label that is missing": {func(f *istio.Facts, _ *istio.Workload) {
			f.Services[0].Spec.Selector = both
			for i := range f.Gateways {
				f.Gateways[i].Spec.Selector = both
			}
		}, true, true},
	} {
		w := gateway(istio.EnvoyFilters)
		f := seed(shoot("a", list("203.0.113.0/24")), shoot("b", policy.SourceList{}))
		x.change(&f, &w)
		p, _ := istio.Plan(f, w)
		f = f.With(p)
		gaps, strays := istio.Coverage(f, w), istio.Strays(f, w)
		if len(gaps) > 0 != x.gaps || len(strays) > 0 != x.strays {
			t.Errorf("%s: gaps %v, strays %v", what, gaps, strays)
		}
		for _, u := range append(gaps, strays...) {
			if u.Cluster != "shoot--p--a" {
				t.Errorf("%s: %v", what, u)
			}
		}
	}
}

// What cannot be judged is reported for every cluster with a list.
func TestWhatCannotBeJudgedIsReported(t *testing.T) {
	written := func(f istio.Facts, w istio.Workload) istio.Facts {
		p, _ := istio.Plan(f, w)
		return f.With(p)
	}
	for what, change := range map[string]func(*istio.Facts, *istio.Workload){
		"a gateway of the Gateway API": func(_ *istio.Facts, w *istio.Workload) {
			w.Labels = map[string]string{"app": "istio-ingressgateway", "gateway.networking.k8s.io/gateway-name": "x"}
		},
		"a route by a header at another port": func(f *istio.Facts, _ *istio.Workload) {
			e := adds("HTTP_ROUTE", `{"route":{"clusterHeader":"x"}}`)
			e.Spec.ConfigPatches[0].Match = istio.PatchMatch{RouteConfiguration: &istio.RouteMatch{PortNumber: 80}}
			f.EnvoyFilters = append(f.EnvoyFilters, e)
		},
		"a patch that cannot be read": func(f *istio.Facts, _ *istio.Workload) {
			f.EnvoyFilters = append(f.EnvoyFilters, adds("FILTER_CHAIN", `{"filters":`))
		},
		"a chain without a name at a port that is not known": func(f *istio.Facts, w *istio.Workload) {
			f.Services[0].Spec.Ports[0].TargetPort = json.RawMessage(`"tls"`)
			f.Gateways = append(f.Gateways, server("shoot--p--a", "tcp", w.Labels, istio.Server{Hosts: []string{"*"},
				Port: istio.Port{Number: 443, Protocol: "TCP"}}))
			f.VirtualServices = append(f.VirtualServices, istio.VirtualService{Metadata: meta("shoot--p--a", "tcp"),
				Spec: istio.VirtualServiceSpec{Hosts: []string{"*"}, Gateways: []string{"tcp"}, TCP: []istio.L4Route{
					{Route: []istio.Route{{Destination: istio.Destination{Host: "kube-apiserver"}}}}}}})
		},
		"an AuthorizationPolicy that looks at identities": func(f *istio.Facts, _ *istio.Workload) {
			f.AuthorizationPolicies = append(f.AuthorizationPolicies, istio.AuthorizationPolicy{Metadata: meta("istio-system", "x"),
				Spec: istio.AuthzSpec{Action: "DENY", Rules: []istio.AuthzRule{
					{From: []istio.AuthzFrom{{Source: istio.AuthzSource{NotPrincipals: []string{"x"}}}}}}}})
		},
		"a filter for some proxies": func(f *istio.Facts, _ *istio.Workload) {
			e := adds("NETWORK_FILTER", `{"name":"x","typed_config":{"@type":`+
				`"type.googleapis.com/envoy.extensions.filters.network.rbac.v3.RBAC"}}`)
			e.Spec.ConfigPatches[0].Patch.Operation = "INSERT_FIRST"
			e.Spec.ConfigPatches[0].Match = istio.PatchMatch{Proxy: json.RawMessage(`{"proxyVersion":"1"}`)}
			f.EnvoyFilters = append(f.EnvoyFilters, e)
		},
	} {
		f, w := seed(shoot("a", list("203.0.113.0/24")), shoot("b", policy.SourceList{})), gateway(istio.Auto)
		if u := istio.Coverage(written(f, w), w); len(u) > 0 {
			t.Fatal(u)
		}
		change(&f, &w)
		u := istio.Coverage(written(f, w), w)
		if len(u) == 0 || slices.ContainsFunc(u, func(u istio.Uncovered) bool { return u.Cluster != "shoot--p--a" }) {
			t.Errorf("%s: %v", what, u)
		}
	}
}
