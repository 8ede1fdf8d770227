// SPDX-License-Identifier: Apache-2.0

package access

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/access/istio"
	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/control/clusters"
	"github.com/tombolo-io/tombolo/internal/control/controlconf"
)

// known is a world with one cluster, whose list admits one range.
func known(protected bool) clusters.World {
	list := policy.SourceList{Protected: protected}
	if protected {
		list.Allow = []policy.SourceEntry{{Prefix: netip.MustParsePrefix("203.0.113.0/24"), Rule: "office"}}
	}
	return clusters.World{Clusters: []istio.Cluster{{Name: "c1", Namespace: "shoot--p--c1", Ways: []istio.Way{
		{Flow: "api", Hosts: []string{"api.c1.example.org"}, List: list}}}}}
}

// stored is an EnvoyFilter of somebody else that adds a chain to the cluster c1.
func stored(t *testing.T, name string) istio.EnvoyFilter {
	t.Helper()
	var e istio.EnvoyFilter
	if err := json.Unmarshal([]byte(strings.ReplaceAll(foreign, "--p--a.", "--p--c1.")), &e); err != nil {
		t.Fatal(err)
	}
	e.Metadata = istio.Meta{Name: name, Namespace: "istio-ingress", ResourceVersion: "7"}
	e.Prepare()
	return e
}

func TestGuardsInFiltersOfOthers(t *testing.T) {
	c := controlconf.Access{Gateways: []istio.Workload{{Namespace: "istio-ingress", Labels: map[string]string{"app": "gw"},
		Enforcement: istio.EnvoyFilters}}}
	names := func(j judged, loses bool) (out []string) {
		for _, s := range j.steps {
			for _, r := range s.Write {
				if s.Loses == loses {
					out = append(out, r.Name)
				}
			}
		}
		return out
	}
	facts := istio.Facts{EnvoyFilters: []istio.EnvoyFilter{stored(t, "shoot--p--c1")}}
	j := judge(c, known(true), facts)
	if got := names(j, false); !slices.Equal(got, []string{"tombolo-api-c1", "shoot--p--c1"}) {
		t.Fatalf("%+v", j.steps)
	}
	if owner := owners(j.want)[j.want.Injected[0].Ref()]; owner != "c1" {
		t.Errorf("it is for %q", owner)
	}
	held := known(true)
	held.Policies = []clusters.Rules{{Name: "office", Lost: true}}
	if j := judge(c, held, facts); len(j.steps) > 0 {
		t.Errorf("nothing may change: %+v", j.steps)
	}

	facts.EnvoyFilters[0] = j.want.Injected[0].After
	if j := judge(c, known(true), facts); slices.Contains(names(j, false), "shoot--p--c1") {
		t.Errorf("it is written again: %+v", j.steps)
	}
	j = judge(c, known(false), facts)
	if len(names(j, false)) > 0 || !slices.Equal(names(j, true), []string{"shoot--p--c1"}) {
		t.Errorf("the list is gone: %+v", j.steps)
	}

	taken := stored(t, "tombolo-api-c1") // a name that ours should have
	facts.EnvoyFilters = append(facts.EnvoyFilters, taken)
	j = judge(c, known(true), facts)
	if !slices.Equal(names(j, false), []string{"tombolo-api-c1"}) || len(j.foreign) != 1 || len(j.want.Injected) != 1 {
		t.Errorf("it gets its guard, and is not written over: %+v, %v", j.steps, j.foreign)
	}
	if j = judge(c, known(false), facts); len(names(j, true)) != 1 {
		t.Errorf("%+v", j.steps)
	}
}

func TestATenantThatIsLostHoldsWhatIsItsOwn(t *testing.T) {
	c := controlconf.Access{Gateways: []istio.Workload{{Namespace: "istio-ingress", Labels: map[string]string{"app": "gw"},
		Enforcement: istio.EnvoyFilters, ConnectPorts: []istio.ConnectPort{{Port: 8132, Header: "reversed-vpn"}}}}}
	world := func(lost string, protected bool) clusters.World {
		w := known(protected)
		w.Clusters[0].Ways = append(w.Clusters[0].Ways, istio.Way{Flow: "vpn", List: w.Clusters[0].Ways[0].List,
			Destinations: []string{"outbound|1194||vpn-seed-server.shoot--p--c1.svc.cluster.local"}})
		other := w.Clusters[0]
		other.Name, other.Namespace, other.Ways = "c2", "shoot--p--c2", slices.Clone(other.Ways[:1])
		other.Ways[0].Hosts = []string{"api.c2.example.org"}
		w.Clusters = append(w.Clusters, other)
		w.Tenants = []clusters.Ways{{Name: "c1", Lost: lost == "c1"}, {Name: "c2", Lost: lost == "c2"}}
		return w
	}
	steps := func(j judged) (out []string) {
		for _, s := range j.steps {
			for _, r := range slices.Concat(s.Write, s.Remove) {
				out = append(out, r.Name)
			}
		}
		return out
	}
	const one, two, port = "tombolo-api-c1", "tombolo-api-c2", "tombolo-connect-8132-0"
	for lost, want := range map[string][]string{"": {one, two, port}, "c1": {two}, "c2": {one}} {
		j := judge(c, world(lost, true), istio.Facts{})
		if got := steps(j); !slices.Equal(got, want) || len(got)+len(j.held) != 3 {
			t.Errorf("lost %q: %q, held %v", lost, got, j.held)
		}
	}
	there := istio.Facts{}.With(judge(c, world("", true), istio.Facts{}).want)
	if j := judge(c, world("c1", false), there); len(j.steps) > 0 || len(j.held) != 3 {
		t.Errorf("nothing is taken away meanwhile: %+v, held %v", j.steps, j.held)
	}
}

func TestAnObjectThatIsTooLargeIsNotWritten(t *testing.T) {
	c := controlconf.Access{Gateways: []istio.Workload{{Namespace: "istio-ingress", Labels: map[string]string{"app": "gw"},
		Enforcement: istio.EnvoyFilters}}}
	two := known(true)
	other := two.Clusters[0]
	other.Name, other.Namespace = "c2", "shoot--p--c2"
	other.Ways = []istio.Way{{Flow: "api", Hosts: []string{"api.c2.example.org"}, List: other.Ways[0].List}}
	two.Clusters = append(two.Clusters, other)
	before := judge(c, two, istio.Facts{})
	there := istio.Facts{}.With(before.want)

	long := two
	long.Clusters = slices.Clone(two.Clusters)
	long.Policies = []clusters.Rules{{Name: "office", Source: "AccessPolicy office", Content: v1alpha1.AccessContent{
		Rules: []v1alpha1.AccessRule{{Name: "home"}, {Name: "office"}}}}}
	list := policy.SourceList{Protected: true}
	for i := range 10000 {
		a := netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0})
		list.Allow = append(list.Allow, policy.SourceEntry{Prefix: netip.PrefixFrom(a, 24), Rule: "office"})
	}
	long.Clusters[0].Ways = []istio.Way{{Flow: "api", Hosts: []string{"api.c1.example.org"}, List: list}}
	long.Clusters[1].Ways = []istio.Way{{Flow: "api", Hosts: []string{"api.c2.example.org"}, List: policy.SourceList{Protected: true}}}
	j := judge(c, long, there)
	ref := istio.Ref{Kind: istio.KindEnvoyFilter, Namespace: "istio-ingress", Name: "tombolo-api-c1"}
	if len(j.large) != 1 || j.large[ref] <= istio.MostBytes || len(j.steps) != 1 || j.steps[0].Write[0].Name != "tombolo-api-c2" {
		t.Errorf("%v, %+v", j.large, j.steps)
	}
	long.Clusters[1].Ways[0].List = policy.SourceList{}
	if j = judge(c, long, there); len(j.steps) != 1 || !j.steps[0].Loses || j.steps[0].Remove[0].Name != "tombolo-api-c2" {
		t.Errorf("others wait for it: %+v", j.steps)
	}
	o := outcome{judged: j, owner: owners(j.want)}
	got := o.ready(map[string]bool{"c1": true}, false)
	if got.reason != objects.ReasonUnwritten ||
		!strings.Contains(got.message, "the most is 512: AccessPolicy office rules[1].sources has 10000 of its ranges") {
		t.Errorf("%+v", got)
	}
	if got = o.ready(map[string]bool{"c2": true}, false); got.reason != objects.ReasonInForce {
		t.Errorf("%+v", got)
	}
}

func TestASelectorWithTooFewLabelsIsAProblem(t *testing.T) {
	labels := func(pairs ...string) map[string]string {
		out := map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			out[pairs[i]] = pairs[i+1]
		}
		return out
	}
	both, zone := labels("app", "gw", "istio", "ingress"), labels("app", "gw", "istio", "zone")
	selects := func(all ...map[string]string) (f istio.Facts) {
		for _, l := range all {
			f.Gateways = append(f.Gateways, istio.Gateway{Metadata: istio.Meta{Namespace: "ns", Name: "g"},
				Spec: istio.GatewaySpec{Selector: l}})
		}
		return f
	}
	for name, c := range map[string]struct {
		facts    istio.Facts
		gateways []map[string]string
		want     int
	}{
		"one of two labels":            {selects(both), []map[string]string{labels("app", "gw")}, 1},
		"both":                         {selects(both), []map[string]string{both}, 0},
		"more":                         {selects(labels("app", "gw")), []map[string]string{both}, 0},
		"there is no Gateway":          {istio.Facts{}, []map[string]string{both}, 0},
		"one without Gateways for now": {selects(both), []map[string]string{both, zone}, 0},
		"one of others":                {selects(both, labels("app", "other")), []map[string]string{both}, 0},
	} {
		var all []istio.Workload
		for _, l := range c.gateways {
			all = append(all, istio.Workload{Namespace: "istio-ingress", Labels: l})
		}
		got := judge(controlconf.Access{Gateways: all}, clusters.World{}, c.facts).problems
		if len(got) != c.want || c.want > 0 && !strings.Contains(got[0].What, "Gateway ns/g selects by app=gw,istio=ingress,") {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestAPortWithANameIsAProblemUntilItIsKnown(t *testing.T) {
	var s istio.Service
	if err := json.Unmarshal([]byte(`{"metadata":{"namespace":"istio-ingress","name":"gw"},"spec":{"selector":{"app":"gw"},
		"ports":[{"port":443,"targetPort":"tls"}]}}`), &s); err != nil {
		t.Fatal(err)
	}
	w := istio.Workload{Namespace: "istio-ingress", Labels: map[string]string{"app": "gw"}, Enforcement: istio.EnvoyFilters}
	facts := istio.Facts{Services: []istio.Service{s}, Gateways: []istio.Gateway{{Metadata: istio.Meta{Namespace: "ns", Name: "g"},
		Spec: istio.GatewaySpec{Selector: map[string]string{"app": "gw"}, Servers: []istio.Server{{Hosts: []string{"*"},
			Port: istio.Port{Name: "tls", Number: 443, Protocol: "TLS"}}}}}}}
	for _, ports := range []map[string]uint32{nil, {"tls": 9443}} {
		w.PortNames = ports
		j := judge(controlconf.Access{Gateways: []istio.Workload{w}}, known(true), facts)
		if unclear := len(j.problems) == 1 && strings.Contains(j.problems[0].What, "portNames"); unclear != (ports == nil) {
			t.Errorf("%v: %v", ports, j.problems)
		}
	}
}

func TestGuardsOfOthersAreNoChangeOfOthers(t *testing.T) {
	c := controlconf.Access{Gateways: []istio.Workload{{Namespace: "istio-ingress", Labels: map[string]string{"app": "gw"}}}}
	e := stored(t, "shoot--p--c1")
	i := judge(c, known(true), istio.Facts{EnvoyFilters: []istio.EnvoyFilter{e}}).want.Injected[0]
	other := stored(t, "shoot--p--c1")
	other.Spec.Priority = 1
	for _, one := range []struct {
		next istio.EnvoyFilter
		only bool
	}{{i.After, true}, {e, true}, {other, false}} {
		if got := onlyGuards(decoded{foreign: true, value: &e}, decoded{foreign: true, value: &one.next}); got != one.only {
			t.Errorf("%+v: %v", one.next, got)
		}
	}
	if onlyGuards(decoded{foreign: true, value: &istio.Gateway{}}, decoded{value: &istio.Gateway{}}) {
		t.Error("a Gateway has no guards")
	}
}
