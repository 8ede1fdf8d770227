// SPDX-License-Identifier: Apache-2.0

package istio_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/access/istio"
	"github.com/tombolo-io/tombolo/internal/access/policy"
)

// The EnvoyFilters of a shoot whose TLS ends at the gateway, in the shape that Gardener gives them.
const (
	// gardenerProxy is where the gateway leads requests of the apiserver-proxy: through a socket to itself.
	gardenerProxy = `
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: shoot--p--a-apiserver-proxy, namespace: istio-ingress}
spec:
  workloadSelector: {labels: {app: istio-ingressgateway}}
  configPatches:
  - applyTo: LISTENER
    match: {context: GATEWAY}
    patch:
      operation: ADD
      value:
        name: shoot--p--a--kube-apiserver-socket
        address: {pipe: {path: "@kube-apiservers/shoot--p--a"}}
        filter_chains:
        - filters:
          - name: envoy.filters.network.http_connection_manager
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
              stat_prefix: shoot--p--a--kube-apiserver-socket
              route_config:
                virtual_hosts:
                - name: all
                  domains: ["*"]
                  routes:
                  - {match: {prefix: /}, route: {cluster: outbound|443||kube-apiserver-mtls.shoot--p--a.svc.cluster.local}}
                  - {match: {prefix: /}, route: {cluster: outbound|443||kube-apiserver.shoot--p--a.svc.cluster.local}}
  - applyTo: CLUSTER
    match: {context: ANY}
    patch:
      operation: ADD
      value:
        name: shoot--p--a--kube-apiserver-socket
        type: STATIC
        load_assignment:
          cluster_name: shoot--p--a--kube-apiserver-socket
          endpoints:
          - lb_endpoints:
            - endpoint: {address: {pipe: {path: "@kube-apiservers/shoot--p--a"}}}
`
	// gardenerTermination leads requests with a client's certificate elsewhere than those of the VirtualService.
	gardenerTermination = `
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: shoot--p--a-istio-tls-termination, namespace: istio-ingress}
spec:
  workloadSelector: {labels: {app: istio-ingressgateway}}
  configPatches:
  - applyTo: HTTP_ROUTE
    match: {context: GATEWAY, routeConfiguration: {name: https.443.tls.kube-apiserver.shoot--p--a}}
    patch: &route
      operation: INSERT_BEFORE
      value:
        match: {prefix: /}
        route: {cluster: outbound|443||kube-apiserver-mtls.shoot--p--a.svc.cluster.local}
  - applyTo: HTTP_ROUTE
    match: {context: GATEWAY, routeConfiguration: {name: https.443.wildcard-tls.kube-apiserver.shoot--p--a}}
    patch: *route
  - applyTo: CLUSTER
    match: {context: ANY, cluster: {name: outbound|443||kube-apiserver-connection-upgrade.shoot--p--a.svc.cluster.local}}
    patch:
      operation: MERGE
      value: {transportSocket: {name: envoy.transport_sockets.tls}}
  - applyTo: HTTP_ROUTE
    match:
      context: GATEWAY
      routeConfiguration:
        name: https.443.tls.kube-apiserver.shoot--p--a
        vhost: {route: {name: connection-upgrade}}
    patch:
      operation: MERGE
      value: {route: {upgrade_configs: [{upgrade_type: websocket}]}}
`
)

// terminating lets the gateway end the TLS of the shoot a, as Gardener does, by its own names and by the wildcard's.
func terminating(f istio.Facts) istio.Facts {
	ends := func(name string, hosts ...string) istio.Server {
		return istio.Server{Hosts: hosts, Port: istio.Port{Name: name, Number: 443, Protocol: "HTTPS"},
			TLS: &istio.ServerTLS{Mode: "OPTIONAL_MUTUAL"}}
	}
	c := &f.Clusters[0]
	wild := "api-p--a.ingress.seed.example.org"
	own := c.Ways[0].Hosts
	c.Ways[0].Hosts = append(slices.Clone(own), wild)
	for i := range f.Gateways {
		if f.Gateways[i].Metadata.Namespace == c.Namespace {
			f.Gateways[i].Spec.Servers = []istio.Server{ends("tls", own...), ends("wildcard-tls", wild)}
		}
	}
	for i := range f.VirtualServices {
		if v := &f.VirtualServices[i]; v.Metadata.Namespace == c.Namespace {
			v.Spec = istio.VirtualServiceSpec{Hosts: c.Ways[0].Hosts, Gateways: v.Spec.Gateways, HTTP: []istio.HTTPRoute{{
				Route: []istio.Route{{Destination: istio.Destination{Host: "kube-apiserver." + c.Namespace + ".svc.cluster.local"}}}}}}
		}
	}
	return f
}

// A route that somebody adds to those of a Gateway's server is behind the guard of its chain, if that leads to the
// cluster alone.
func TestRoutesOfAGuardedChain(t *testing.T) {
	l := list("203.0.113.0/24")
	for what, x := range map[string]struct {
		change func(f *istio.Facts, text string) string
		clean  bool
	}{
		"as Gardener has it": {func(_ *istio.Facts, s string) string { return s }, true},
		"another server":     {func(_ *istio.Facts, s string) string { return strings.ReplaceAll(s, ".tls.", ".http.") }, false},
		"all routes": {func(_ *istio.Facts, s string) string {
			return strings.ReplaceAll(s, "name: https.443.tls.kube-apiserver.shoot--p--a", "x: y")
		}, false},
		"a port without TLS": {func(_ *istio.Facts, s string) string {
			return strings.ReplaceAll(s, "https.443.tls.kube-apiserver.shoot--p--a", "http.80")
		}, false},
		"the chain of another cluster": {func(f *istio.Facts, s string) string {
			return strings.ReplaceAll(s, "kube-apiserver.shoot--p--a", "kube-apiserver.shoot--p--b")
		}, false},
		"wherever a client wants": {func(_ *istio.Facts, s string) string {
			return strings.Replace(s, "route: {cluster:", "route: {cluster_header: x, y:", 1)
		}, false},
		"the chain leads elsewhere too": {func(f *istio.Facts, s string) string {
			r := &f.VirtualServices[1].Spec.HTTP[0].Route
			*r = append(*r, istio.Route{Destination: istio.Destination{Host: "kube-apiserver.shoot--p--b.svc.cluster.local"}})
			return s
		}, false},
	} {
		for _, enforcement := range []string{istio.Auto, istio.EnvoyFilters, istio.Policies} {
			w := gateway(enforcement)
			f := seed(shoot("a", l), shoot("b", policy.SourceList{}))
			if what == "the chain of another cluster" { // it ends TLS as well
				f.Clusters[0], f.Clusters[1] = f.Clusters[1], f.Clusters[0]
				f = terminating(f)
				f.Clusters[0], f.Clusters[1] = f.Clusters[1], f.Clusters[0]
			}
			f = terminating(f)
			f.EnvoyFilters = append(f.EnvoyFilters, read(t, x.change(&f, gardenerTermination)), read(t, gardenerProxy))
			p, problems := istio.Plan(f, w)
			if gaps := istio.Coverage(f.With(p), w); len(gaps)+len(problems) == 0 != x.clean {
				t.Errorf("%s: %s: %v, %v", enforcement, what, gaps, problems)
			}
		}
	}
}

// read reads an EnvoyFilter.
func read(t *testing.T, text string) istio.EnvoyFilter {
	t.Helper()
	var f istio.Facts
	if err := f.Read("x.yaml", []byte(text)); err != nil || len(f.EnvoyFilters) != 1 {
		t.Fatal(err, len(f.EnvoyFilters))
	}
	return f.EnvoyFilters[0]
}

// Who comes through a socket has no address, so that a list there would refuse everybody. He was judged at the CONNECT
// port, where he named the socket.
func TestNoListAtASocket(t *testing.T) {
	socket := read(t, gardenerProxy)
	destination := socket.Spec.ConfigPatches[1]
	other := read(t, strings.ReplaceAll(gardenerProxy, "name: shoot--p--a--kube-apiserver-socket", "name: back"))
	l := list("203.0.113.0/24")
	named := shoot("a", l)
	unlisted := shoot("a", l)
	unlisted.Ways[2].Destinations = unlisted.Ways[2].Destinations[:1]
	byName := shoot("a", l)
	byName.Ways = byName.Ways[:1]
	for what, x := range map[string]struct {
		cluster istio.Cluster
		filter  istio.EnvoyFilter
		ports   bool
		gap     string // in what Coverage says
	}{
		"the destination has a list":                 {named, socket, true, ""},
		"an unknown destination is refused":          {unlisted, socket, true, ""},
		"nothing at the CONNECT ports has a list":    {byName, socket, true, "shoot--p--a--kube-apiserver-socket"},
		"no CONNECT port":                            {byName, socket, false, ""},
		"a name that is no destination":              {named, other, true, "back"},
		"a name that is no destination of a cluster": {named, other, false, ""},
	} {
		for _, enforcement := range []string{istio.Auto, istio.EnvoyFilters, istio.Policies} {
			w := gateway(enforcement)
			if !x.ports {
				w.ConnectPorts = nil
			}
			f := seed(x.cluster)
			f.EnvoyFilters = append(f.EnvoyFilters, x.filter)
			if in, changed := istio.Inject(x.filter, f, w); changed {
				t.Errorf("%s: a guard at the socket: %s", what, in.Spec.ConfigPatches[0].Patch.Value)
			}
			p, problems := istio.Plan(f, w)
			gaps := istio.Coverage(f.With(p), w)
			if (x.gap == "") != (len(gaps)+len(problems) == 0) || x.gap != "" && !strings.Contains(gaps[0].Why, x.gap) {
				t.Errorf("%s: %s: %v, %v", enforcement, what, gaps, problems)
			}
		}
	}
	// What an earlier version put there is taken out.
	earlier := socket
	earlier.Spec.ConfigPatches = []istio.ConfigPatch{socket.Spec.ConfigPatches[0], destination}
	value := string(socket.Spec.ConfigPatches[0].Patch.Value)
	earlier.Spec.ConfigPatches[0].Patch.Value = []byte(strings.Replace(value, `"filters":[`,
		`"filters":[{"name":"`+istio.GuardName("shoot--p--a")+`"},`, 1))
	f := seed(named)
	f.EnvoyFilters = append(f.EnvoyFilters, earlier)
	in := istio.Injections(f, nil, gateway(istio.Auto))
	if len(earlier.Guarded()) != 1 || len(in) != 1 || !in[0].Loses || len(in[0].After.Guarded()) > 0 {
		t.Errorf("%v", in)
	}
	q := istio.Question{Cluster: "shoot--p--a", Flow: policy.FlowProxy, Source: netip.MustParseAddr("203.0.113.1")}
	p, _ := istio.Plan(f, gateway(istio.EnvoyFilters))
	if allow, same := istio.Decide(f.With(p), gateway(istio.EnvoyFilters), q).Verdict(); !allow || !same {
		t.Error("who is in the list is refused")
	}
}

// backend adds a cluster of Envoy under a name of its own that leads to the API server, and a chain or a listener at a
// pipe that leads to it.
func backend(name, chain string) istio.EnvoyFilter {
	e := adds("CLUSTER", `{"name":"`+name+`","type":"STRICT_DNS","load_assignment":{"cluster_name":"`+name+`","endpoints":[
		{"lb_endpoints":[{"endpoint":{"address":{"socket_address":{"address":"kube-apiserver.shoot--p--a.svc.cluster.local",
		"port_value":443}}}}]}]}}`)
	e.Spec.ConfigPatches = append(e.Spec.ConfigPatches, adds("FILTER_CHAIN", strings.ReplaceAll(apiserverProxy,
		"outbound|443||kube-apiserver.shoot--p--a.svc.cluster.local", chain)).Spec.ConfigPatches...)
	return e
}

// A chain that leads to a cluster of Envoy leads to what that one leads to, also through a pipe, and in another object.
func TestClustersOfEnvoyAreFollowed(t *testing.T) {
	pipe := read(t, gardenerProxy)
	pipe.Spec.ConfigPatches = append(pipe.Spec.ConfigPatches, backend("unused", "x").Spec.ConfigPatches[1])
	pipe.Spec.ConfigPatches[2].Patch.Value = []byte(strings.Replace(string(pipe.Spec.ConfigPatches[2].Patch.Value),
		`"cluster":"x"`, `"cluster":"front"`, 1))
	front := adds("CLUSTER", `{"name":"front","load_assignment":{"endpoints":[{"lb_endpoints":[{"endpoint":{"address":{
		"pipe":{"path":"@kube-apiservers/shoot--p--a"}}}}]}]}}`)
	pipe.Spec.ConfigPatches = append(pipe.Spec.ConfigPatches, front.Spec.ConfigPatches...)
	whole := backend("back", "back")
	named := func(name string, e istio.EnvoyFilter) istio.EnvoyFilter {
		e.Metadata.Name = name
		return e
	}
	chain, cluster := whole, named("cluster", whole)
	chain.Spec.ConfigPatches, cluster.Spec.ConfigPatches = whole.Spec.ConfigPatches[1:], whole.Spec.ConfigPatches[:1]
	for what, x := range map[string]struct {
		filters []istio.EnvoyFilter
		chain   bool
	}{
		"by its name":          {[]istio.EnvoyFilter{whole}, true},
		"in another object":    {[]istio.EnvoyFilter{chain, cluster}, true},
		"through a pipe":       {[]istio.EnvoyFilter{pipe}, true},
		"nobody leads to it":   {[]istio.EnvoyFilter{backend("back", "elsewhere")}, false},
		"a ring":               {[]istio.EnvoyFilter{whole, named("ring", adds("CLUSTER", `{"name":"back","x":"back"}`))}, true},
		"only the cluster":     {[]istio.EnvoyFilter{cluster}, false},
		"wherever it is asked": {[]istio.EnvoyFilter{chain, named("x", adds("CLUSTER", `{"name":"back","cluster_header":"x"}`))}, true},
	} {
		w := gateway(istio.EnvoyFilters)
		w.ConnectPorts = nil // there a name of its own is reported
		f := seed(shoot("a", list("203.0.113.0/24")))
		f.EnvoyFilters = append(f.EnvoyFilters, x.filters...)
		p, _ := istio.Plan(f, w)
		g := f.With(p)
		if gaps := istio.Coverage(g, w); len(gaps) > 0 != x.chain {
			t.Errorf("%s: %v", what, gaps)
		}
		in := istio.Injections(f, nil, w)
		if what == "wherever it is asked" {
			if len(in) > 0 {
				t.Errorf("%s: %v", what, in)
			}
			continue
		}
		if len(in) > 0 != x.chain {
			t.Errorf("%s: %v", what, in)
			continue
		}
		for i, e := range g.EnvoyFilters {
			if len(in) > 0 && e.Metadata.Name == in[0].Before.Metadata.Name {
				g.EnvoyFilters[i] = in[0].After
			}
		}
		if gaps := istio.Coverage(g, w); len(gaps) > 0 {
			t.Errorf("%s: injected: %v", what, gaps)
		}
	}
}

// The names of a shoot end with its id, and the id of the project x-p's shoot s ends like that of the project p's. Nobody
// without a list is refused by the list of another shoot, if there is anything in his namespace.
func TestIDsThatEndAlike(t *testing.T) {
	c := shoot("s", list("203.0.113.0/24"))
	for _, enforcement := range istio.Enforcements() {
		for ns, open := range map[string]bool{"shoot--x-p--s": true, "shoot-x-p--s": true, "shoot--p--s": false,
			"shoot--xp--s": false, "x-p--s": false, "": false} {
			w := gateway(enforcement)
			f := seed(c)
			if ns != "" {
				f.Services = append(f.Services, istio.Service{Metadata: meta(ns, "kube-apiserver")})
			}
			p, _ := istio.Plan(f, w)
			f = f.With(p)
			if gaps := istio.Coverage(f, w); len(gaps) > 0 {
				t.Errorf("%s: %v", enforcement, gaps)
			}
			for name, want := range map[string]bool{"gu-x-p--s": open, "api-x-p--s": open, "gu-p--s": false, "x-p--s": false,
				"gu-xp--s": true, "gu-y-p--s": false} {
				g := f
				g.Clusters = append(slices.Clone(f.Clusters), istio.Cluster{Name: "probe", Namespace: "probe", Ways: []istio.Way{
					{Flow: "ingress", Hosts: []string{name + ".ingress.seed.example.org"}}}})
				q := istio.Question{Cluster: "probe", Flow: "ingress", Source: netip.MustParseAddr("192.0.2.1")}
				if got := decided(t, g, w, q); got != want {
					t.Errorf("%s, namespace %q: %s: %v", enforcement, ns, name, got)
				}
			}
		}
	}
}
