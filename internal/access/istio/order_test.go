// SPDX-License-Identifier: Apache-2.0

package istio_test

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tombolo-io/tombolo/internal/access/istio"
)

// pick is the object of a plan that a reference names, as a plan of one.
func pick(p istio.Planned, r istio.Ref) istio.Planned {
	is := func(m istio.Meta, kind string) bool {
		return r == istio.Ref{Kind: kind, Namespace: m.Namespace, Name: m.Name}
	}
	var out istio.Planned
	for _, o := range p.EnvoyFilters {
		if is(o.Metadata, "EnvoyFilter") {
			out.EnvoyFilters = append(out.EnvoyFilters, o)
		}
	}
	for _, o := range p.AuthorizationPolicies {
		if is(o.Metadata, "AuthorizationPolicy") {
			out.AuthorizationPolicies = append(out.AuthorizationPolicies, o)
		}
	}
	for _, o := range p.ConfigMaps {
		if is(o.Metadata, "ConfigMap") {
			out.ConfigMaps = append(out.ConfigMaps, o)
		}
	}
	return out
}

// without is a plan without an object.
func without(p istio.Planned, r istio.Ref) istio.Planned {
	is := func(m istio.Meta, kind string) bool {
		return r == istio.Ref{Kind: kind, Namespace: m.Namespace, Name: m.Name}
	}
	return istio.Planned{
		EnvoyFilters: slices.DeleteFunc(slices.Clone(p.EnvoyFilters), func(o istio.EnvoyFilter) bool {
			return is(o.Metadata, "EnvoyFilter")
		}),
		AuthorizationPolicies: slices.DeleteFunc(slices.Clone(p.AuthorizationPolicies),
			func(o istio.AuthorizationPolicy) bool { return is(o.Metadata, "AuthorizationPolicy") }),
		ConfigMaps: slices.DeleteFunc(slices.Clone(p.ConfigMaps), func(o istio.ConfigMap) bool {
			return is(o.Metadata, "ConfigMap")
		}),
	}
}

func join(a, b istio.Planned) istio.Planned {
	return istio.Planned{
		EnvoyFilters:          slices.Concat(a.EnvoyFilters, b.EnvoyFilters),
		AuthorizationPolicies: slices.Concat(a.AuthorizationPolicies, b.AuthorizationPolicies),
		ConfigMaps:            slices.Concat(a.ConfigMaps, b.ConfigMaps),
	}
}

// follow makes the edits of an order one by one, and calls look after each.
func follow(have, want istio.Planned, look func(istio.Planned)) istio.Planned {
	now := have
	for _, s := range istio.Order(have, want) {
		for _, r := range s.Write {
			now = join(without(now, r), pick(want, r))
			look(now)
		}
		for _, r := range s.Remove {
			now = without(now, r)
			look(now)
		}
	}
	return now
}

// refs are the objects of a plan.
func refs(p istio.Planned) (out []string) {
	for _, s := range istio.Order(istio.Planned{}, p) {
		for _, r := range s.Write {
			out = append(out, r.String())
		}
	}
	slices.Sort(out)
	return out
}

// notOpen fails if somebody passes whom the list of a way refuses.
func notOpen(t *rapid.T, f istio.Facts, w istio.Workload, when string) {
	for _, u := range istio.Coverage(f, w) {
		if u.Kind == istio.Open || u.Kind == istio.Differs && strings.Contains(u.Why, "it lets") {
			t.Fatalf("%s: %v", when, u)
		}
	}
}

func TestAMoveBetweenEnforcementsIsNeverOpen(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawFacts(t)
		from := gateway(rapid.SampledFrom(istio.Enforcements()).Draw(t, "from"))
		to := gateway(rapid.SampledFrom(istio.Enforcements()).Draw(t, "to"))
		if from.Enforcement == istio.ExtAuthz || to.Enforcement == istio.ExtAuthz {
			a := shoot("a", drawList(t, "by name")) // what ext_authz can guard
			a.Ways = a.Ways[:3]
			f = seed(a)
		}
		from.Complete, to.Complete = rapid.Bool().Draw(t, "complete"), rapid.Bool().Draw(t, "complete then")
		have, _ := istio.Plan(f, from)
		want, _ := istio.Plan(f, to)
		end := follow(have, want, func(now istio.Planned) { notOpen(t, f.With(now), to, "in between") })
		if u := istio.Coverage(f.With(end), to); len(u) > 0 {
			t.Fatal(u)
		}
		if got, want := refs(end), refs(want); !slices.Equal(got, want) {
			t.Fatalf("%v, want %v", got, want)
		}
		if again := istio.Order(end, want); len(again) > 0 {
			t.Fatalf("there is more to do: %v", again)
		}
	})
}

func TestAMoveToAnotherNamespaceWritesBeforeItRemoves(t *testing.T) {
	f := seed(shoot("a", list("203.0.113.0/24")))
	old, next := gateway(istio.Auto), gateway(istio.Auto)
	next.Namespace = "istio-ingress--zone-a"
	have, _ := istio.Plan(f, old)
	want, _ := istio.Plan(f, next)
	steps := istio.Order(istio.Owned(f.With(have), old.Namespace), want)
	for i, s := range steps {
		if len(s.Remove) > 0 && (i == 0 || !steps[i-1].Await) {
			t.Errorf("step %d removes %v without waiting", i, s.Remove)
		}
		for _, r := range s.Write {
			if r.Namespace != next.Namespace {
				t.Errorf("step %d writes %v", i, r)
			}
		}
		for _, r := range s.Remove {
			if r.Namespace != old.Namespace {
				t.Errorf("step %d removes %v", i, r)
			}
		}
	}
	if n := len(steps); n != 4 || len(steps[0].Remove)+len(steps[1].Remove) > 0 {
		t.Errorf("%d steps: %v", n, steps)
	}
}

func TestAnEditOfAListIsOneStep(t *testing.T) {
	others := shoot("b", list("203.0.113.0/24"))
	for _, enforcement := range istio.Enforcements() {
		w := gateway(enforcement)
		have, _ := istio.Plan(seed(shoot("a", list("203.0.113.0/24", "!203.0.113.9/32")), others), w)
		want, _ := istio.Plan(seed(shoot("a", list("198.51.100.0/24", "!198.51.100.7/32")), others), w)
		if steps := istio.Order(have, want); len(steps) != 1 || len(steps[0].Write) == 0 || steps[0].Loses {
			t.Errorf("%s: %v", enforcement, steps)
		}
		want, _ = istio.Plan(seed(others), w)
		if steps := istio.Order(have, want); len(steps) == 0 || !steps[len(steps)-1].Loses {
			t.Errorf("%s: without a list: %v", enforcement, steps)
		}
	}
}

func TestDeletionLeavesNothing(t *testing.T) {
	f := seed(shoot("a", list("203.0.113.0/24")))
	for _, enforcement := range istio.Enforcements() {
		have, _ := istio.Plan(f, gateway(enforcement))
		f := seed()
		want, problems := istio.Plan(f, gateway(enforcement))
		end := follow(have, want, func(istio.Planned) {})
		if got := refs(end); len(got) > 0 || len(problems) > 0 {
			t.Errorf("%s: %v, %v", enforcement, got, problems)
		}
	}
}

func TestDrainsNameTheConnections(t *testing.T) {
	before := seed(shoot("a", list("203.0.113.0/24")), shoot("b", list("203.0.113.0/24")))
	after := seed(shoot("a", list("198.51.100.0/24")), shoot("b", list("203.0.113.0/24")))
	for enforcement, want := range map[string][]string{
		istio.Auto: {
			"false EnvoyFilter istio-ingress/tombolo-api-shoot--p--a: connections for api.a.p.example.org at port 9443",
			"true EnvoyFilter istio-ingress/tombolo-api-shoot--p--a: connections for *.ingress.seed.example.org at port 9443",
		},
		istio.EnvoyFilters: {
			"false EnvoyFilter istio-ingress/tombolo-api-shoot--p--a: connections for api.a.p.example.org at port 9443",
			"true EnvoyFilter istio-ingress/tombolo-api-shoot--p--a: connections for *.ingress.seed.example.org at port 9443",
			"true EnvoyFilter istio-ingress/tombolo-connect-8132-0: all connections at port 8132",
			"true EnvoyFilter istio-ingress/tombolo-connect-8443-0: all connections at port 8443",
		},
		istio.Policies: {
			"true AuthorizationPolicy istio-ingress/tombolo-shoot--p--a: all connections of the gateway, because each of its " +
				"filter chains has the rules of all AuthorizationPolicies",
		},
		istio.ExtAuthz: nil,
	} {
		w := gateway(enforcement)
		old, _ := istio.Plan(before, w)
		next, _ := istio.Plan(after, w)
		var got []string
		for _, d := range istio.Drains(old, next) {
			text := "false "
			if d.Everybody {
				text = "true "
			}
			got = append(got, text+d.Object+": "+d.What)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q", enforcement, got)
		}
		var edits []string
		for _, d := range istio.Drains(old, next) {
			what, _, _ := strings.Cut(d.What, ", because")
			edits = append(edits, what)
		}
		slices.Sort(edits)
		if got := old.Edits()["shoot--p--a"]; !slices.Equal(got, edits) {
			t.Errorf("%s: an edit ends %q, want %q", enforcement, got, edits)
		}
		if same := istio.Drains(old, old); len(same) > 0 {
			t.Errorf("%s: nothing changed: %v", enforcement, same)
		}
	}
}
