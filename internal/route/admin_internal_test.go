// SPDX-License-Identifier: Apache-2.0

package route

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// named is a Route of two clusters whose names are resolved, and one whose names are not.
func named(t *testing.T) *Route {
	t.Helper()
	one := func(name, as string, dns *v1alpha1.RouteDNS) v1alpha1.RouteCluster {
		return v1alpha1.RouteCluster{Name: name, Hubs: []string{"h1:8443"}, Certificate: "/" + name + ".pem", DNS: dns,
			Ranges: []v1alpha1.RouteRange{{Range: "10.244.0.0/16", As: as}}}
	}
	cfg := Configure(v1alpha1.RouteConfig{Clusters: []v1alpha1.RouteCluster{
		one("c1", "", &v1alpha1.RouteDNS{Server: "10.244.0.10"}),
		one("c2", "240.2.0.0/16", &v1alpha1.RouteDNS{Server: "10.244.0.10:5353", Zone: "c2.internal"}),
		one("c3", "240.3.0.0/16", nil),
	}}, func(path, format string, args ...any) { t.Errorf(path+": "+format, args...) })
	return New(cfg, Options{Log: slog.New(slog.DiscardHandler), Reg: prometheus.NewRegistry()})
}

func TestExplain(t *testing.T) {
	r := named(t)
	for asked, want := range map[string]string{
		"10.244.3.4:80":                      "c1 10.244.3.4:80",
		"240.2.3.4:80":                       "c2 10.244.3.4:80",
		"192.0.0.53:53":                      "resolver",
		"[fd74:6f6d:626f::53]:53":            "resolver",
		"web.shop.svc.cluster.local":         "c1 web.shop.svc.cluster.local of 10.244.0.10:53",
		"Web.shop.svc.c2.internal.:443":      "c2 web.shop.svc.cluster.local of 10.244.0.10:5353",
		"4.3.2.240.in-addr.arpa":             "c2 4.3.244.10.in-addr.arpa of 10.244.0.10:5353",
		"192.0.0.53:80":                      "not_found: at no other port than 53",
		"192.0.0.54:53":                      "not_found: is in no range",
		"240.3.0.1:80":                       "c3 10.244.0.1:80",
		"1.0.3.240.in-addr.arpa":             "not_found: is no name of a cluster",
		"example.com:443":                    "not_found: example.com is no name of a cluster",
		"240.2.3.4":                          "request_malformed: neither an address with a port nor a name",
		"240.2.3.4:x":                        "request_malformed: neither",
		"web.shop.svc.c2.internal:https":     "request_malformed: neither",
		"web.shop.svc.c2.internal:0":         "request_malformed: neither",
		"web..c2.internal":                   "request_malformed: neither",
		"":                                   "request_malformed: neither",
		strings.Repeat("a", 64) + ".c2.test": "request_malformed: neither",
	} {
		e, err := r.Explain(asked)
		got := strings.TrimSpace(e.Cluster + " " + e.Target)
		switch {
		case err != nil:
			got = string(fault.From(err).Code) + ": " + fault.From(err).Explain()
		case e.Resolver:
			got = "resolver"
		case e.DNS != nil:
			got += " of " + e.DNS.Server
		}
		code, part, failed := strings.Cut(want, ": ")
		if got != want && !(failed && strings.HasPrefix(got, code+": ") && strings.Contains(got, part)) {
			t.Errorf("%q: %s, want %s", asked, got, want)
		}
	}
}

func TestStatusHasNames(t *testing.T) {
	r := named(t)
	r.names.said["c2"] = "policy_denied: no"
	st := r.Status()
	if strings.Join(st.Resolver, " ") != "192.0.0.53 fd74:6f6d:626f::53" {
		t.Error(st.Resolver)
	}
	if d := st.Clusters[0].DNS; d == nil || d.Zone != "cluster.local" || d.Domain != "cluster.local" || d.Failed != "" {
		t.Error(d)
	}
	if d := st.Clusters[1].DNS; d == nil || d.Zone != "c2.internal" || d.Domain != "cluster.local" ||
		d.Server != "10.244.0.10:5353" || d.Failed != "policy_denied: no" {
		t.Error(d)
	}
	if d := st.Clusters[2].DNS; d != nil {
		t.Error(d)
	}
}
