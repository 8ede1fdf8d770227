// SPDX-License-Identifier: Apache-2.0

//go:build pilot

package pilot

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tombolo-io/tombolo/internal/access/istio"
	"github.com/tombolo-io/tombolo/internal/access/policy"
)

// shared is a label that the pods of all gateways have: what selects by it is for each of them.
func shared() map[string]string { return map[string]string{"istio": "ingress"} }

// drawGateways are gateways in namespaces of their own, each with an enforcement of its own.
func drawGateways(t *rapid.T) (out []istio.Workload) {
	zones := []string{"", "--zone-a", "--zone-b"}
	for _, zone := range zones[:rapid.IntRange(2, len(zones)).Draw(t, "gateways")] {
		w := workload(rapid.SampledFrom(istio.Enforcements()).Draw(t, "enforcement"+zone), zone)
		maps.Copy(w.Labels, shared())
		w.Complete = rapid.Bool().Draw(t, "complete"+zone)
		out = append(out, w)
	}
	return out
}

// drawSeeds are shoots of which each is at one gateway, at several by objects of its own for each, or at all by objects
// that select what the pods share.
func drawSeeds(t *rapid.T, gateways []istio.Workload) (f istio.Facts) {
	at := make([][]istio.Cluster, len(gateways))
	var all, anywhere []istio.Cluster
	for _, name := range []string{"foo", "foo-bar", "bar", "a-foo"}[:rapid.IntRange(1, 4).Draw(t, "shoots")] {
		c := shoot(name, policy.SourceList{})
		for i := range c.Ways {
			c.Ways[i].List = drawList(t, name+"/"+c.Ways[i].Flow)
		}
		all = append(all, c)
		if rapid.IntRange(0, 3).Draw(t, name+" is at all") == 0 {
			anywhere = append(anywhere, c)
			continue
		}
		home := rapid.IntRange(0, len(gateways)-1).Draw(t, name+" is at")
		for i := range gateways {
			if i == home || rapid.IntRange(0, 3).Draw(t, name+" is moving") == 0 {
				at[i] = append(at[i], c)
			}
		}
	}
	for i, w := range gateways {
		one := seed(w, at[i]...)
		f.Services = append(f.Services, one.Services...)
		f.Gateways = append(f.Gateways, one.Gateways...)
		f.VirtualServices = append(f.VirtualServices, one.VirtualServices...)
		f.EnvoyFilters = append(f.EnvoyFilters, one.EnvoyFilters...)
	}
	for _, c := range anywhere {
		g := tlsServer(gateways[0], c.Namespace, "kube-apiserver", "PASSTHROUGH", c.Ways[0].Hosts...)
		g.Spec.Selector = shared()
		f.Gateways = append(f.Gateways, g)
		f.VirtualServices = append(f.VirtualServices, tlsRoute(c.Namespace, "kube-apiserver",
			"kube-apiserver."+c.Namespace+".svc.cluster.local", c.Ways[0].Hosts...))
	}
	f.Clusters = all
	return f
}

// atGateway are the facts with those hosts of clusters alone for which a gateway has a server.
func atGateway(f istio.Facts, w istio.Workload) istio.Facts {
	served := map[string]bool{}
	for _, g := range f.Gateways {
		selects := true
		for k, v := range g.Spec.Selector {
			selects = selects && w.Labels[k] == v
		}
		for _, s := range g.Spec.Servers {
			for _, h := range s.Hosts {
				served[h] = served[h] || selects
			}
		}
	}
	clusters := f.Clusters
	f.Clusters = nil
	for _, c := range clusters {
		c.Ways = slices.Clone(c.Ways)
		for i := range c.Ways {
			c.Ways[i].Hosts = slices.DeleteFunc(slices.Clone(c.Ways[i].Hosts), func(h string) bool {
				return !served[h] && !strings.HasPrefix(h, "*") // *.ingress.seed.example.org is served everywhere
			})
		}
		f.Clusters = append(f.Clusters, c)
	}
	return f
}

// Several gateways with different enforcements stand beside each other: at each of them all that is written decides as
// the policy does, and what is written for one changes nothing that is planned for another.
func TestVerdictsAtSeveralGateways(t *testing.T) {
	t.Parallel()
	o := start(t)
	rapid.Check(t, func(t *rapid.T) {
		gateways := drawGateways(t)
		f := drawSeeds(t, gateways)
		plans := make([]istio.Planned, len(gateways))
		var all istio.Planned
		for i, w := range gateways {
			planned, problems := istio.Plan(f, w)
			if len(problems) > 0 && w.Enforcement != istio.ExtAuthz {
				t.Fatal(problems)
			}
			plans[i], all = planned, all.And(planned)
		}
		f = f.With(all)
		for i, w := range gateways {
			if again, _ := istio.Plan(f, w); !reflect.DeepEqual(again, plans[i]) {
				t.Fatalf("%s: %s is planned once more, after %s", w.Namespace, text(again), text(plans[i]))
			}
			if gaps := istio.Coverage(f, w); len(gaps) > 0 && w.Enforcement != istio.ExtAuthz {
				t.Fatal(w.Namespace, gaps)
			}
		}
		w := rapid.SampledFrom(gateways).Draw(t, "judged") // pilot takes its time
		r := o.judge(t, f, w, drawPod(t), flows(atGateway(f, w), w, edges(f)...))
		if w.Enforcement == istio.EnvoyFilters {
			if err := guarded(r, f); err != nil {
				t.Fatal(err)
			}
		}
	})
}
