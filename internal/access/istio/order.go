// SPDX-License-Identifier: Apache-2.0

package istio

import (
	"fmt"
	"slices"
)

// Ref names an object.
type Ref struct {
	Kind      string
	Namespace string
	Name      string
}

func (r Ref) String() string { return r.Kind + " " + r.Namespace + "/" + r.Name }

// Step is what is done before the next step begins.
type Step struct {
	Write  []Ref
	Await  bool // until all gateways have taken over what was written
	Remove []Ref
	Loses  bool // a guard goes: what replaces it has to be in force, even if it was written by an earlier order
}

// Owned are the objects in some namespaces that were written for gateways.
func Owned(f Facts, namespaces ...string) (out Planned) {
	ours := func(m Meta) bool {
		return m.Labels[LabelManagedBy] == ManagedBy && slices.Contains(namespaces, m.Namespace)
	}
	for _, o := range f.EnvoyFilters {
		if ours(o.Metadata) {
			out.EnvoyFilters = append(out.EnvoyFilters, o)
		}
	}
	for _, o := range f.AuthorizationPolicies {
		if ours(o.Metadata) {
			out.AuthorizationPolicies = append(out.AuthorizationPolicies, o)
		}
	}
	for _, o := range f.ConfigMaps {
		if ours(o.Metadata) {
			out.ConfigMaps = append(out.ConfigMaps, o)
		}
	}
	return out
}

// written is an object with what it says as JSON.
type written struct {
	ref    Ref
	text   string
	asks   bool            // ext_authz
	guards func() []string // nil: none
}

// all lists the objects of a plan: first data, then what asks for it, then the others.
func (p Planned) all() (out []written) {
	for _, o := range p.ConfigMaps {
		out = append(out, written{ref: Ref{KindConfigMap, o.Metadata.Namespace, o.Metadata.Name}, text: text(o.Data)})
	}
	for _, o := range p.AuthorizationPolicies {
		out = append(out, written{Ref{KindAuthorizationPolicy, o.Metadata.Namespace, o.Metadata.Name},
			text(o.Spec), o.Spec.Action == "CUSTOM", o.guards})
	}
	for _, o := range p.EnvoyFilters {
		out = append(out, written{Ref{KindEnvoyFilter, o.Metadata.Namespace, o.Metadata.Name}, text(o.Spec), false,
			o.guards})
	}
	return out
}

// Order leads from the objects that are there to those of a plan, so that no way is open in between: data before those
// who ask for it, whatever guards something new before that loses a part (an entry may have moved), and nothing is
// removed before all gateways have what replaces it. An edit of a list is one step. A move to another namespace or
// enforcement is no special case.
func Order(have, want Planned) (out []Step) {
	old := map[Ref]written{}
	for _, o := range have.all() {
		old[o.ref] = o
	}
	steps := make([]Step, 3) // data and guards, those who ask for data, those that lose a part
	for _, o := range want.all() {
		before, there := old[o.ref]
		delete(old, o.ref)
		at := 0
		switch {
		case there && sameJSON(before.text, o.text):
			continue
		case o.ref.Kind == KindConfigMap:
		case there && !o.keeps(before):
			at = 2
		case o.asks:
			at = 1
		}
		steps[at].Write = append(steps[at].Write, o.ref)
		steps[at].Await = true
	}
	for _, i := range want.Injected {
		at := 0
		if i.Loses {
			at = 2
		}
		steps[at].Write, steps[at].Await = append(steps[at].Write, i.Ref()), true
	}
	steps[2].Loses = true
	guards, data := Step{Loses: true}, Step{Loses: true}
	for _, o := range have.all() {
		switch _, gone := old[o.ref]; {
		case !gone:
		case o.ref.Kind == KindConfigMap:
			data.Remove = append(data.Remove, o.ref)
		default:
			guards.Remove = append(guards.Remove, o.ref)
		}
	}
	if len(data.Remove) > 0 {
		guards.Await = len(guards.Remove) > 0 // who asks for it
	}
	for _, s := range append(steps, guards, data) {
		if len(s.Write)+len(s.Remove) > 0 {
			out = append(out, s)
		}
	}
	return out
}

// keeps reports whether an object guards all that it guarded before, whoever is let in.
func (o written) keeps(before written) bool {
	return !slices.ContainsFunc(before.guards(), func(g string) bool { return !slices.Contains(o.guards(), g) })
}

// guards are what a filter guards: chains, and the requests that its policies are about.
func (e EnvoyFilter) guards() (out []string) {
	at := text(e.Spec.WorkloadSelector)
	for _, p := range e.Spec.ConfigPatches {
		place := at + p.ApplyTo + text(p.Match)
		_, _, rules, err := readFilter(p.Patch.Value)
		if err != nil || rules == nil {
			out = append(out, place+text(p.Patch))
			continue
		}
		out = append(out, place+rules.Action)
		for name, r := range rules.Policies {
			out = append(out, place+name+text(r.Permissions))
		}
	}
	return out
}

// guards are what a policy guards.
func (a AuthorizationPolicy) guards() (out []string) {
	at := text(a.Spec.Selector) + a.Spec.Action + text(a.Spec.Provider)
	for _, r := range a.Spec.Rules {
		r.From = nil
		out = append(out, at+text(r))
	}
	return out
}

func sameJSON(a, b string) bool { return a == b || alike([]byte(a), []byte(b)) }

// Drain says which connections an edit ends: Envoy closes those of a filter chain that changes, after its drain time.
type Drain struct {
	Object    string
	Everybody bool   // those of clusters that the edit is not about too
	What      string // such as "connections for api.example.org at port 9443"
}

// Drains says so for the way from one plan to the next, sorted by objects.
func Drains(before, after Planned) (out []Drain) {
	old := map[Ref]EnvoyFilter{}
	for _, o := range before.EnvoyFilters {
		old[Ref{KindEnvoyFilter, o.Metadata.Namespace, o.Metadata.Name}] = o
	}
	for _, o := range after.EnvoyFilters {
		ref := Ref{KindEnvoyFilter, o.Metadata.Namespace, o.Metadata.Name}
		out = append(out, drained(ref, old[ref].Spec.ConfigPatches, o.Spec.ConfigPatches)...)
		delete(old, ref)
	}
	for _, o := range before.EnvoyFilters {
		ref := Ref{KindEnvoyFilter, o.Metadata.Namespace, o.Metadata.Name}
		if _, gone := old[ref]; gone {
			out = append(out, drained(ref, o.Spec.ConfigPatches, nil)...)
		}
	}
	rules := map[Ref]string{}
	for _, o := range (Planned{AuthorizationPolicies: before.AuthorizationPolicies}).all() {
		rules[o.ref] = o.text
	}
	all := func(ref Ref) {
		out = append(out, Drain{Object: ref.String(), Everybody: true, What: "all connections of the gateway, because each " +
			"of its filter chains has the rules of all AuthorizationPolicies"})
	}
	for _, o := range (Planned{AuthorizationPolicies: after.AuthorizationPolicies}).all() {
		if was, there := rules[o.ref]; !there || !sameJSON(was, o.text) {
			all(o.ref)
		}
		delete(rules, o.ref)
	}
	for _, o := range (Planned{AuthorizationPolicies: before.AuthorizationPolicies}).all() {
		if _, gone := rules[o.ref]; gone {
			all(o.ref)
		}
	}
	return out
}

// connections are those of the chains that a patch changes; one: of chains of one server name.
func (p ConfigPatch) connections() (what string, one bool) {
	l := p.Match.Listener
	switch {
	case l == nil:
	case l.FilterChain != nil && l.FilterChain.SNI != "":
		what = "connections for " + l.FilterChain.SNI
		if l.PortNumber != 0 {
			what += fmt.Sprintf(" at port %d", l.PortNumber)
		}
		return what, true
	case l.PortNumber != 0:
		return fmt.Sprintf("all connections at port %d", l.PortNumber), false
	}
	return wholeGateway, false
}

const wholeGateway = "all connections of the gateway"

// Edits says, by cluster, which connections an edit of its list ends: none where ext_authz decides, since its objects
// do not depend on what lists say. They are sorted, each once.
func (p Planned) Edits() map[string][]string {
	by := map[string][]string{} // by object
	for _, o := range p.EnvoyFilters {
		ref := Ref{KindEnvoyFilter, o.Metadata.Namespace, o.Metadata.Name}.String()
		for _, patch := range o.Spec.ConfigPatches {
			what, _ := patch.connections()
			by[ref] = append(by[ref], what)
		}
	}
	for _, o := range p.AuthorizationPolicies {
		if o.Spec.Action != "CUSTOM" {
			by[Ref{KindAuthorizationPolicy, o.Metadata.Namespace, o.Metadata.Name}.String()] = []string{wholeGateway}
		}
	}
	out, seen := map[string][]string{}, map[[2]string]bool{}
	for _, c := range p.Covered {
		if key := [2]string{c.Cluster, c.By}; !seen[key] {
			seen[key] = true
			out[c.Cluster] = append(out[c.Cluster], by[c.By]...)
		}
	}
	for name, all := range out {
		slices.Sort(all)
		out[name] = slices.Compact(all)
	}
	return out
}

// drained compares the patches of an EnvoyFilter, chain by chain.
func drained(ref Ref, before, after []ConfigPatch) (out []Drain) {
	old := map[string]string{}
	for _, p := range before {
		old[p.ApplyTo+text(p.Match)] = text(p.Patch)
	}
	said := map[string]bool{}
	say := func(p ConfigPatch) {
		key := p.ApplyTo + text(p.Match)
		if said[key] {
			return
		}
		said[key] = true
		what, one := p.connections()
		out = append(out, Drain{Object: ref.String(), What: what,
			Everybody: !one || p.ApplyTo == "HTTP_FILTER" || forShared(p)})
	}
	for _, p := range after {
		key := p.ApplyTo + text(p.Match)
		if was, there := old[key]; !there || !sameJSON(was, text(p.Patch)) {
			say(p)
		}
		delete(old, key)
	}
	for _, p := range before {
		if _, gone := old[p.ApplyTo+text(p.Match)]; gone {
			say(p)
		}
	}
	return out
}

// forShared reports whether a patch puts a guard into a chain that other clusters share: that of an own one allows.
func forShared(p ConfigPatch) bool {
	_, _, rules, err := readFilter(p.Patch.Value)
	return err == nil && rules != nil && rules.Action == "DENY"
}
