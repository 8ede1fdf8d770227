// SPDX-License-Identifier: Apache-2.0

package istio_test

import (
	"encoding/json"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/access/istio"
	"github.com/tombolo-io/tombolo/internal/access/policy"
)

var update = flag.Bool("update", false, "write the golden files")

// list is protected with these ranges; those with a ! are denied.
func list(ranges ...string) policy.SourceList {
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

// denyOnly refuses nobody but these ranges.
func denyOnly(ranges ...string) policy.SourceList {
	out := list(ranges...)
	out.Protected = false
	return out
}

// shoot is a cluster as Gardener reaches it, with one list in all flows.
func shoot(name string, l policy.SourceList) istio.Cluster {
	ns := "shoot--p--" + name
	service := func(port, service string) string {
		return "outbound|" + port + "||" + service + "." + ns + ".svc.cluster.local"
	}
	return istio.Cluster{Name: ns, Namespace: ns, Ways: []istio.Way{
		{Flow: "api", Hosts: []string{"api." + name + ".p.example.org", "api." + name + ".p.internal.example.org"}, List: l},
		{Flow: "vpn", Destinations: []string{service("1194", "vpn-seed-server"), service("1194", "vpn-seed-server-0")}, List: l},
		{Flow: "proxy", Destinations: []string{service("443", "kube-apiserver"), ns + "--kube-apiserver-socket"}, List: l},
		{Flow: "ingress", Hosts: []string{"*-p--" + name + ".ingress.seed.example.org"}, List: l},
	}}
}

// gateway is the ingress gateway of a seed.
func gateway(enforcement string) istio.Workload {
	return istio.Workload{
		Namespace: "istio-ingress", Labels: map[string]string{"app": "istio-ingressgateway"}, Enforcement: enforcement,
		ConnectPorts: []istio.ConnectPort{{8132, "reversed-vpn"}, {8443, "x-gardener-destination"}},
		Provider:     "tombolo",
	}
}

func meta(ns, name string) istio.Meta { return istio.Meta{Namespace: ns, Name: name} }

// seed are the objects of a seed with some shoots.
func seed(shoots ...istio.Cluster) istio.Facts {
	selector := map[string]string{"app": "istio-ingressgateway"}
	f := istio.Facts{
		Clusters: shoots,
		Services: []istio.Service{{Metadata: meta("istio-ingress", "istio-ingressgateway"), Spec: istio.ServiceSpec{
			Type: "LoadBalancer", Selector: selector, Ports: []istio.ServicePort{
				{Name: "tcp", Port: 443, TargetPort: json.RawMessage("9443")},
				{Name: "tls-tunnel", Port: 8132, TargetPort: json.RawMessage("8132")},
				{Name: "http-proxy", Port: 8443, TargetPort: json.RawMessage("8443")},
			}}}},
		Gateways: []istio.Gateway{
			server("garden", "reversed-vpn-auth-server", selector, istio.Server{Hosts: []string{"*"},
				Port: istio.Port{Name: "tls-tunnel", Number: 8132, Protocol: "HTTP"}}),
			server("istio-ingress", "http-proxy", selector, istio.Server{Hosts: []string{"*"},
				Port: istio.Port{Name: "http-proxy", Number: 8443, Protocol: "HTTP"}}),
			server("garden", "nginx-ingress-controller", selector, istio.Server{Hosts: []string{"*.ingress.seed.example.org"},
				Port: istio.Port{Name: "tls", Number: 443, Protocol: "TLS"}, TLS: &istio.ServerTLS{Mode: "PASSTHROUGH"}}),
		},
		VirtualServices: []istio.VirtualService{
			tls("garden", "nginx-ingress-controller", "nginx-ingress-controller.garden.svc.cluster.local",
				"*.ingress.seed.example.org"),
		},
	}
	for _, c := range shoots {
		hosts := c.Ways[0].Hosts
		f.Gateways = append(f.Gateways, server(c.Namespace, "kube-apiserver", selector, istio.Server{Hosts: hosts,
			Port: istio.Port{Name: "tls", Number: 443, Protocol: "TLS"}, TLS: &istio.ServerTLS{Mode: "PASSTHROUGH"}}))
		f.VirtualServices = append(f.VirtualServices, tls(c.Namespace, "kube-apiserver",
			"kube-apiserver."+c.Namespace+".svc.cluster.local", hosts...))
	}
	return f
}

func server(ns, name string, selector map[string]string, servers ...istio.Server) istio.Gateway {
	return istio.Gateway{Metadata: meta(ns, name), Spec: istio.GatewaySpec{Selector: selector, Servers: servers}}
}

// tls routes TLS to a service, by a gateway of the same name.
func tls(ns, name, to string, hosts ...string) istio.VirtualService {
	return istio.VirtualService{Metadata: meta(ns, name), Spec: istio.VirtualServiceSpec{Hosts: hosts, Gateways: []string{name},
		TLS: []istio.L4Route{{Match: []istio.L4Match{{Port: 443, SNIHosts: hosts}},
			Route: []istio.Route{{Destination: istio.Destination{Host: to}}}}}}}
}

// golden compares a value with a file.
func golden(t *testing.T, name string, v any) {
	t.Helper()
	got, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	path := filepath.Join("testdata", name+".json")
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("%s is not as it was; look at the difference after 'go test -update'\n%s", path, got)
	}
}
