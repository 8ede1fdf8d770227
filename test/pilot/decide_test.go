// SPDX-License-Identifier: Apache-2.0

//go:build pilot

package pilot

import (
	"fmt"
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"github.com/tombolo-io/tombolo/internal/access/istio"
	"github.com/tombolo-io/tombolo/internal/access/policy"
)

// The gateway's family is no matter: what is written matches by port, not by the name of a listener.
func TestFamiliesOfAGateway(t *testing.T) {
	t.Parallel()
	o := start(t)
	for _, enforcement := range istio.Enforcements() {
		for name, p := range families() {
			w := workload(enforcement, "")
			f := seed(w, shoot("foo", listOf("203.0.113.0/24", "!203.0.113.7/32", "2001:db8::/32")),
				shoot("foo-bar", policy.SourceList{}), shoot("bar", listOf("198.51.100.0/24")))
			planned, problems := istio.Plan(f, w)
			if len(problems) > 0 && enforcement != istio.ExtAuthz {
				t.Fatal(problems)
			}
			f = f.With(planned)
			r := o.judge(t, f, w, p, flows(f, w, edges(f)...))
			if enforcement == istio.EnvoyFilters {
				if err := guarded(r, f); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
	}
}

func drawList(t *rapid.T, label string) policy.SourceList {
	var out policy.SourceList
	out.Protected = rapid.Bool().Draw(t, label+" protected")
	for i := range rapid.IntRange(0, 5).Draw(t, label+" entries") {
		var p netip.Prefix
		if rapid.Bool().Draw(t, "v4") {
			p = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(rapid.IntRange(0, 3).Draw(t, "b")),
				byte(rapid.IntRange(0, 3).Draw(t, "c")), 0}), rapid.IntRange(0, 32).Draw(t, "bits"))
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

// drawSeed is a gateway with shoots, of which some have names that begin like others.
func drawSeed(t *rapid.T, w istio.Workload) istio.Facts {
	names := rapid.Permutation([]string{"foo", "foo-bar", "bar", "a-foo"}).Draw(t, "names")
	var shoots []istio.Cluster
	for _, name := range names[:rapid.IntRange(1, 4).Draw(t, "shoots")] {
		c := shoot(name, policy.SourceList{})
		for i := range c.Ways {
			c.Ways[i].List = drawList(t, name+"/"+c.Ways[i].Flow)
		}
		shoots = append(shoots, c)
	}
	f := seed(w, shoots...)
	if rapid.Bool().Draw(t, "a wildcard host, TLS ends at the gateway") {
		c := &f.Clusters[0]
		host := "api-" + c.Name[len("shoot--"):] + ".ingress.seed.example.org"
		f.Gateways = append(f.Gateways, tlsServer(w, c.Namespace, "kube-apiserver-wildcard", "SIMPLE", host))
		f.VirtualServices = append(f.VirtualServices, httpRoute(c.Namespace, "kube-apiserver-wildcard", "kube-apiserver", host))
		c.Ways[0].Hosts = append(c.Ways[0].Hosts, host)
	}
	return f
}

func drawPod(t *rapid.T) pod {
	return families()[rapid.SampledFrom([]string{"IPv4 first", "IPv6 first", "dual", "IPv6 only"}).Draw(t, "family")]
}

// What is written decides of every flow as the policy does.
func TestVerdictsAreThePolicys(t *testing.T) {
	t.Parallel()
	o := start(t)
	rapid.Check(t, func(t *rapid.T) {
		w := workload(rapid.SampledFrom(istio.Enforcements()).Draw(t, "enforcement"), rapid.SampledFrom([]string{"", "--zone-a"}).Draw(t, "zone"))
		if w.Enforcement == istio.Auto && rapid.Bool().Draw(t, "no provider") {
			w.Provider = ""
		}
		w.Complete = rapid.Bool().Draw(t, "complete")
		f := drawSeed(t, w)
		planned, problems := istio.Plan(f, w)
		if len(problems) > 0 && w.Enforcement != istio.ExtAuthz {
			t.Fatal(problems)
		}
		f = f.With(planned)
		if u := istio.Coverage(f, w); len(u) > 0 && w.Enforcement != istio.ExtAuthz {
			t.Fatal(u)
		}
		r := o.judge(t, f, w, drawPod(t), flows(f, w, edges(f)...))
		if w.Enforcement == istio.EnvoyFilters {
			if err := guarded(r, f); err != nil {
				t.Fatal(err)
			}
		}
	})
}
