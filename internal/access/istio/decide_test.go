// SPDX-License-Identifier: Apache-2.0

package istio_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tombolo-io/tombolo/internal/access/istio"
	"github.com/tombolo-io/tombolo/internal/access/policy"
)

func TestEveryEnforcementDecidesAsTheList(t *testing.T) {
	a := shoot("a", list("203.0.113.0/24", "!203.0.113.7/32", "2001:db8::/32"))
	f := seed(a, shoot("b", policy.SourceList{}), shoot("foo-a", list()), shoot("c", denyOnly("!198.51.100.0/24")))
	for _, enforcement := range istio.Enforcements() {
		w := gateway(enforcement)
		written, problems := istio.Plan(f, w)
		open := enforcement == istio.ExtAuthz // tenants cannot have the hosts of the seed's ingress
		for _, p := range problems {
			if !open || p.Flow != "ingress" {
				t.Errorf("%s: %v", enforcement, p)
			}
		}
		g := f.With(written)
		for _, u := range istio.Coverage(g, w) {
			if !open || u.Flow != "ingress" || u.Kind != istio.Open {
				t.Errorf("%s: %v", enforcement, u)
			}
		}
		for _, c := range f.Clusters {
			for _, way := range c.Ways {
				if open && way.Flow == "ingress" {
					continue
				}
				for _, from := range []string{"203.0.113.1", "203.0.113.7", "198.51.100.1", "192.0.2.1", "2001:db8::1", "2001:db9::",
					"::ffff:203.0.113.1"} {
					source := netip.MustParseAddr(from)
					got := istio.Decide(g, w, istio.Question{Cluster: c.Name, Flow: way.Flow, Source: source})
					allow, same := got.Verdict()
					if want := way.List.Admits(source); !same || allow != want || len(got.Ways) == 0 {
						t.Errorf("%s: %s/%s from %s: %v, want %v: %+v", enforcement, c.Name, way.Flow, from, allow, want, got)
					}
				}
			}
		}
	}
}

func drawList(t *rapid.T, label string) policy.SourceList {
	var out policy.SourceList
	out.Protected = rapid.Bool().Draw(t, label+" protected")
	for i := range rapid.IntRange(0, 6).Draw(t, label+" entries") {
		var p netip.Prefix
		if rapid.Bool().Draw(t, "v4") {
			p = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(rapid.IntRange(0, 3).Draw(t, "b")), byte(rapid.IntRange(0, 3).Draw(t, "c")), 0}),
				rapid.IntRange(0, 32).Draw(t, "bits"))
		} else {
			p = netip.PrefixFrom(netip.MustParseAddr(fmt.Sprintf("2001:db8:%d::", rapid.IntRange(0, 3).Draw(t, "d"))),
				rapid.IntRange(0, 128).Draw(t, "bits"))
		}
		e := policy.SourceEntry{Prefix: p.Masked(), Rule: fmt.Sprintf("rule-%d", i%3)}
		if rapid.IntRange(0, 2).Draw(t, "deny") == 0 {
			out.Deny = append(out.Deny, e)
		} else {
			out.Allow = append(out.Allow, e)
		}
	}
	return out
}

func drawSource(t *rapid.T) netip.Addr {
	if rapid.Bool().Draw(t, "from v4") {
		return netip.AddrFrom4([4]byte{byte(rapid.IntRange(9, 11).Draw(t, "a")), byte(rapid.IntRange(0, 4).Draw(t, "b")),
			byte(rapid.IntRange(0, 4).Draw(t, "c")), byte(rapid.IntRange(0, 255).Draw(t, "d"))})
	}
	return netip.MustParseAddr(fmt.Sprintf("2001:db8:%x::%x", rapid.IntRange(0, 4).Draw(t, "e"), rapid.IntRange(0, 9).Draw(t, "f")))
}

// drawFacts are the shoots of a seed, with names of which some are the end of others, and a list for each way.
func drawFacts(t *rapid.T) istio.Facts {
	var shoots []istio.Cluster
	for _, name := range []string{"a", "foo-a", "b"}[:rapid.IntRange(1, 3).Draw(t, "shoots")] {
		c := shoot(name, policy.SourceList{})
		for i := range c.Ways {
			c.Ways[i].List = drawList(t, name+"/"+c.Ways[i].Flow)
		}
		shoots = append(shoots, c)
	}
	f := seed(shoots...)
	selector := gateway("").Labels
	if rapid.Bool().Draw(t, "terminating with a wildcard host") { // both chains of a gateway that ends TLS
		ns := shoots[0].Namespace
		host := "api-p--a.ingress.seed.example.org"
		f.Gateways = append(f.Gateways, server(ns, "kube-apiserver-wildcard", selector, istio.Server{Hosts: []string{host},
			Port: istio.Port{Name: "tls", Number: 443, Protocol: "HTTPS"}, TLS: &istio.ServerTLS{Mode: "SIMPLE"}}))
		f.VirtualServices = append(f.VirtualServices, istio.VirtualService{Metadata: meta(ns, "wildcard"),
			Spec: istio.VirtualServiceSpec{Hosts: []string{host}, Gateways: []string{"kube-apiserver-wildcard"},
				HTTP: []istio.HTTPRoute{{Route: []istio.Route{{Destination: istio.Destination{Host: "kube-apiserver"}}}}}}})
		f.Clusters[0].Ways[0].Hosts = append(f.Clusters[0].Ways[0].Hosts, host)
	}
	return f
}

func TestWhatIsWrittenDecidesAsTheList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawFacts(t)
		w := gateway(rapid.SampledFrom([]string{istio.Auto, istio.EnvoyFilters, istio.Policies}).Draw(t, "enforcement"))
		w.Complete = rapid.Bool().Draw(t, "complete")
		written, problems := istio.Plan(f, w)
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		g := f.With(written)
		if u := istio.Coverage(g, w); len(u) > 0 {
			t.Fatal(u)
		}
		source := drawSource(t)
		for _, c := range f.Clusters {
			for _, way := range c.Ways {
				got := istio.Decide(g, w, istio.Question{Cluster: c.Name, Flow: way.Flow, Source: source})
				allow, same := got.Verdict()
				if want := way.List.Admits(source); !same || allow != want || len(got.Ways) == 0 {
					t.Fatalf("%s/%s from %s: %v, want %v: %+v", c.Name, way.Flow, source, allow, want, got)
				}
			}
		}
		for _, c := range written.Covered {
			if c.By == "" || strings.Contains(c.By, "  ") {
				t.Fatal(c)
			}
		}
	})
}
