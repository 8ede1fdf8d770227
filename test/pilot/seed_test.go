// SPDX-License-Identifier: Apache-2.0

//go:build pilot

package pilot

import (
	"encoding/json"
	"net/netip"
	"strings"

	"github.com/tombolo-io/tombolo/internal/access/istio"
	"github.com/tombolo-io/tombolo/internal/access/policy"
)

// The ports of the gateway: where it listens for what comes to 443, and the CONNECT ports.
const (
	tlsPort   = 9443
	vpnPort   = 8132
	proxyPort = 8443
)

// listOf is protected with these ranges; those with a ! are denied.
func listOf(ranges ...string) policy.SourceList {
	out := policy.SourceList{Protected: true}
	for _, r := range ranges {
		text, deny := strings.CutPrefix(r, "!")
		e := policy.SourceEntry{Prefix: netip.MustParsePrefix(text), Rule: "office"}
		if deny {
			e.Rule = "lost"
			out.Deny = append(out.Deny, e)
		} else {
			out.Allow = append(out.Allow, e)
		}
	}
	return out
}

// shoot is a cluster as Gardener reaches it, with one list in all flows.
func shoot(name string, l policy.SourceList) istio.Cluster {
	ns := "shoot--p--" + name
	service := func(port, service string) string {
		return "outbound|" + port + "||" + service + "." + ns + ".svc.cluster.local"
	}
	return istio.Cluster{Name: ns, Namespace: ns, Ways: []istio.Way{
		{Flow: policy.FlowAPI, Hosts: []string{"api." + name + ".p.example.org", "api." + name + ".p.internal.example.org"}, List: l},
		{Flow: policy.FlowVPN, Destinations: []string{service("1194", "vpn-seed-server"), service("1194", "vpn-seed-server-0")},
			List: l},
		{Flow: policy.FlowProxy, Destinations: []string{service("443", "kube-apiserver"), ns + "--kube-apiserver-socket"}, List: l},
		{Flow: policy.FlowIngress, Hosts: []string{"*-p--" + name + ".ingress.seed.example.org"}, List: l},
	}}
}

// workload is the gateway of a seed; zone is the name of another one.
func workload(enforcement, zone string) istio.Workload {
	return istio.Workload{
		Namespace: "istio-ingress" + zone, Labels: map[string]string{"app": "istio-ingressgateway" + zone},
		Enforcement:  enforcement,
		ConnectPorts: []istio.ConnectPort{{Port: vpnPort, Header: "reversed-vpn"}, {Port: proxyPort, Header: "x-gardener-destination"}},
		Provider:     "tombolo",
	}
}

func meta(ns, name string) istio.Meta { return istio.Meta{Namespace: ns, Name: name} }

// seed are the objects of a seed with some shoots at a gateway. Those of two gateways have different names.
func seed(w istio.Workload, shoots ...istio.Cluster) istio.Facts {
	zone := strings.TrimPrefix(w.Namespace, "istio-ingress")
	f := istio.Facts{
		Clusters: shoots,
		Services: []istio.Service{{Metadata: meta(w.Namespace, "istio-ingressgateway"), Spec: istio.ServiceSpec{
			Type: "LoadBalancer", Selector: w.Labels, Ports: []istio.ServicePort{
				{Name: "tcp", Port: 443, TargetPort: json.RawMessage("9443")},
				{Name: "tls-tunnel", Port: vpnPort, TargetPort: json.RawMessage("8132")},
				{Name: "http-proxy", Port: proxyPort, TargetPort: json.RawMessage("8443")},
			}}}},
		Gateways: []istio.Gateway{
			plainServer(w, "garden", "reversed-vpn-auth-server"+zone, vpnPort), plainServer(w, w.Namespace, "http-proxy", proxyPort),
			tlsServer(w, "garden", "nginx-ingress-controller"+zone, "PASSTHROUGH", "*.ingress.seed.example.org"),
		},
		VirtualServices: []istio.VirtualService{
			tlsRoute("garden", "nginx-ingress-controller"+zone, "nginx-ingress-controller.garden.svc.cluster.local",
				"*.ingress.seed.example.org"),
		},
		EnvoyFilters: []istio.EnvoyFilter{connectRoutes(w, vpnPort), connectRoutes(w, proxyPort)},
	}
	for _, c := range shoots {
		f.Gateways = append(f.Gateways, tlsServer(w, c.Namespace, "kube-apiserver"+zone, "PASSTHROUGH", c.Ways[0].Hosts...))
		f.VirtualServices = append(f.VirtualServices, tlsRoute(c.Namespace, "kube-apiserver"+zone,
			"kube-apiserver."+c.Namespace+".svc.cluster.local", c.Ways[0].Hosts...))
	}
	return f
}

func plainServer(w istio.Workload, ns, name string, port uint32) istio.Gateway {
	return istio.Gateway{Metadata: meta(ns, name), Spec: istio.GatewaySpec{Selector: w.Labels, Servers: []istio.Server{
		{Hosts: []string{"*"}, Port: istio.Port{Name: "http", Number: port, Protocol: "HTTP"}}}}}
}

func tlsServer(w istio.Workload, ns, name, mode string, hosts ...string) istio.Gateway {
	s := istio.Server{Hosts: hosts, Port: istio.Port{Name: "tls", Number: 443, Protocol: "TLS"},
		TLS: &istio.ServerTLS{Mode: mode}}
	if mode != "PASSTHROUGH" {
		s.Port.Protocol = "HTTPS"
	}
	return istio.Gateway{Metadata: meta(ns, name), Spec: istio.GatewaySpec{Selector: w.Labels, Servers: []istio.Server{s}}}
}

// tlsRoute routes TLS to a service, by a gateway of the same name.
func tlsRoute(ns, name, to string, hosts ...string) istio.VirtualService {
	return istio.VirtualService{Metadata: meta(ns, name), Spec: istio.VirtualServiceSpec{Hosts: hosts, Gateways: []string{name},
		TLS: []istio.L4Route{{Match: []istio.L4Match{{Port: 443, SNIHosts: hosts}},
			Route: []istio.Route{{Destination: istio.Destination{Host: to}}}}}}}
}

// httpRoute routes requests to a service, by a gateway of the same name.
func httpRoute(ns, name, to string, hosts ...string) istio.VirtualService {
	return istio.VirtualService{Metadata: meta(ns, name), Spec: istio.VirtualServiceSpec{Hosts: hosts, Gateways: []string{name},
		HTTP: []istio.HTTPRoute{{Route: []istio.Route{{Destination: istio.Destination{Host: to}}}}}}}
}

// connectRoutes let a CONNECT port route by either header, as Gardener does.
func connectRoutes(w istio.Workload, port uint32) istio.EnvoyFilter {
	route := func(header string) string {
		return `{"match":{"connect_matcher":{},"headers":[{"name":"` + header + `","present_match":true}]},
			"route":{"cluster_header":"` + header + `","upgrade_configs":[{"upgrade_type":"CONNECT","connect_config":{}}]}}`
	}
	e := filterOf(w, "connect-routes-"+text(port), "NETWORK_FILTER", "MERGE", `{"name":"`+manager+`","typed_config":{
		"@type":"type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
		"route_config":{"virtual_hosts":[{"name":"connect","domains":["*"],"routes":[`+route("Reversed-VPN")+`,`+
		route("X-Gardener-Destination")+`]}]}}}`)
	e.Spec.ConfigPatches[0].Match.Listener = &istio.ListenerMatch{PortNumber: port,
		FilterChain: &istio.ChainMatch{Filter: &istio.FilterMatch{Name: manager}}}
	return e
}

const manager = "envoy.filters.network.http_connection_manager"

func filterOf(w istio.Workload, name, applyTo, operation, value string) istio.EnvoyFilter {
	return istio.EnvoyFilter{Metadata: meta(w.Namespace, name), Spec: istio.EnvoyFilterSpec{
		WorkloadSelector: &istio.WorkloadSelector{Labels: w.Labels},
		ConfigPatches: []istio.ConfigPatch{{ApplyTo: applyTo, Match: istio.PatchMatch{Context: "GATEWAY"},
			Patch: istio.Patch{Operation: operation, Value: json.RawMessage(value)}}}}}
}

// families are the addresses of a gateway's pod, the first one first.
func families() map[string]pod {
	return map[string]pod{
		"IPv4 first": {Addresses: []string{"10.1.0.9", "fd00::9"}}, "IPv6 first": {Addresses: []string{"fd00::9", "10.1.0.9"}},
		"IPv4 only": {Addresses: []string{"10.1.0.9"}}, "IPv6 only": {Addresses: []string{"fd00::9"}},
		"dual":             {Addresses: []string{"10.1.0.9", "fd00::9"}, DualStack: true},
		"dual, IPv6 first": {Addresses: []string{"fd00::9", "10.1.0.9"}, DualStack: true},
	}
}

// authzService is where ext_authz of Tombolo is, and its name among the clusters of Envoy.
const (
	authzService = "tombolo-ext-authz.tombolo.svc.cluster.local"
	authzCluster = "outbound|9191||" + authzService
)

// at is a world with the objects of some facts at a gateway.
func at(f istio.Facts, w istio.Workload, p pod, questions ...question) world {
	p.Namespace, p.Labels = w.Namespace, w.Labels
	return world{Objects: objects(f), Gateway: p, Questions: questions,
		Providers: []provider{{Name: "tombolo", Service: authzService, Port: 9191}}}
}

func text(v any) string {
	out, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(out)
}
