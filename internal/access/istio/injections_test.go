// SPDX-License-Identifier: Apache-2.0

package istio_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/access/istio"
	"github.com/tombolo-io/tombolo/internal/access/policy"
)

// addsFor is the EnvoyFilter with which Gardener adds a chain for a shoot.
func addsFor(name string) istio.EnvoyFilter {
	out := adds("FILTER_CHAIN", strings.ReplaceAll(apiserverProxy, "shoot--p--a", "shoot--p--"+name))
	out.Metadata.Name = "shoot--p--" + name
	return out
}

func TestInsertTakesNothingOut(t *testing.T) {
	w := gateway(istio.Auto)
	f := seed(shoot("a", list("203.0.113.0/24")))
	got, changed := istio.Insert(addsFor("a"), f, w)
	if want, _ := istio.Inject(addsFor("a"), f, w); !changed || value(got) != value(want) {
		t.Fatalf("%v: %s", changed, value(got))
	}
	none := seed(shoot("a", policy.SourceList{}))
	if left, changed := istio.Insert(got, none, w); changed {
		t.Errorf("the guard is gone: %s", value(left))
	}
	other, changed := istio.Insert(got, seed(shoot("a", list("198.51.100.0/24"))), w)
	if !changed || strings.Contains(value(other), "203.0.113.0") {
		t.Errorf("the guard is not changed: %s", value(other))
	}
	if !slices.Equal(got.Guarded(), []string{"shoot--p--a"}) || len(addsFor("a").Guarded()) > 0 {
		t.Errorf("%q", got.Guarded())
	}
	moved := got
	moved.Spec.Priority = 1
	if !istio.SameButGuards(got, other) || !istio.SameButGuards(got, addsFor("a")) || istio.SameButGuards(got, moved) ||
		istio.SameButGuards(got, addsFor("b")) {
		t.Error("what differs is not told apart from guards")
	}
}

func TestInjections(t *testing.T) {
	w := gateway(istio.Auto)
	former := []string{"istio-former"}
	allow, none := list("203.0.113.0/24"), policy.SourceList{}
	guarded := func(e istio.EnvoyFilter) istio.EnvoyFilter {
		name := strings.TrimPrefix(e.Metadata.Name, "shoot--p--")
		out, _ := istio.Inject(e, seed(shoot(name, allow)), w)
		return out
	}
	both := addsFor("a")
	both.Spec.ConfigPatches = append(both.Spec.ConfigPatches, guarded(addsFor("b")).Spec.ConfigPatches...)
	elsewhere := addsFor("a")
	elsewhere.Metadata.Namespace = "other"
	root := addsFor("a")
	root.Metadata.Namespace = "istio-system"
	moved := guarded(addsFor("a"))
	moved.Metadata.Namespace = "istio-former"
	insert := adds("FILTER_CHAIN", apiserverProxy)
	insert.Spec.ConfigPatches[0].ApplyTo = "NETWORK_FILTER"
	for what, one := range map[string]struct {
		have  istio.EnvoyFilter
		a, b  policy.SourceList
		loses string // "": nothing changes
	}{
		"a new list":              {addsFor("a"), allow, none, "false"},
		"in the root namespace":   {root, allow, none, "false"},
		"in another namespace":    {elsewhere, allow, none, ""},
		"nothing changed":         {guarded(addsFor("a")), allow, none, ""},
		"an edit":                 {guarded(addsFor("a")), denyOnly("!198.51.100.0/24"), none, "false"},
		"the list is gone":        {guarded(addsFor("a")), none, none, "true"},
		"one comes and one goes":  {both, allow, none, "false"},
		"one goes":                {both, none, none, "true"},
		"no chain":                {insert, allow, none, ""},
		"the gateway moved away":  {moved, allow, none, "true"},
		"another cluster's alone": {addsFor("a"), none, allow, ""},
	} {
		f := seed(shoot("a", one.a), shoot("b", one.b))
		f.EnvoyFilters = []istio.EnvoyFilter{one.have}
		got := istio.Injections(f, former, w)
		if len(got) == 0 && one.loses == "" {
			continue
		}
		if len(got) != 1 || fmt.Sprint(got[0].Loses) != one.loses {
			t.Errorf("%s: %v", what, got)
			continue
		}
		if ref := got[0].Ref(); ref.Name != "shoot--p--a" || ref.Kind != istio.KindEnvoyFilter {
			t.Errorf("%s: %v", what, ref)
		}
		for range 3 { // the passes of the controller
			f.EnvoyFilters[0] = got[0].After
			if got = istio.Injections(f, former, w); len(got) == 0 {
				break
			}
		}
		if len(got) > 0 {
			t.Errorf("%s: it has no end", what)
		}
	}
}

func TestGuardsInFiltersOfOthersGoLast(t *testing.T) {
	w := gateway(istio.Policies)
	f := seed(shoot("a", list("203.0.113.0/24")))
	want, _ := istio.Plan(f, w)
	old, _ := istio.Plan(f, gateway(istio.EnvoyFilters))
	in, out := istio.Injection{Before: addsFor("a")}, istio.Injection{Before: addsFor("b"), Loses: true}
	want.Injected = []istio.Injection{out, in}
	steps := istio.Order(old, want)
	if len(steps) != 3 || steps[0].Loses || !slices.Contains(steps[0].Write, in.Ref()) || !steps[1].Loses ||
		!slices.Equal(steps[1].Write, []istio.Ref{out.Ref()}) || len(steps[2].Remove) == 0 {
		t.Errorf("%+v", steps)
	}
}

// BenchmarkInjections is a pass for 500 clusters with 60 ranges each, and as many EnvoyFilters of others.
func BenchmarkInjections(b *testing.B) {
	f := manyShoots(500)
	w := gateway(istio.Auto)
	for i := range 500 {
		got, _ := istio.Inject(addsFor(fmt.Sprintf("s%03d", i)), f, w)
		got.Prepare()
		f.EnvoyFilters = append(f.EnvoyFilters, got)
	}
	b.Run("all", func(b *testing.B) {
		for b.Loop() {
			if got := istio.Injections(f, nil, w); len(got) > 0 {
				b.Fatal("something changed")
			}
		}
	})
	b.Run("one", func(b *testing.B) {
		for b.Loop() {
			if _, changed := istio.Insert(addsFor("s007"), f, w); !changed {
				b.Fatal("nothing changed")
			}
		}
	})
	b.Run("plan", func(b *testing.B) {
		for b.Loop() {
			istio.Plan(f, w)
		}
	})
}
