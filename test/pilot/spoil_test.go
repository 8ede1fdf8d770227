// SPDX-License-Identifier: Apache-2.0

//go:build pilot

package pilot

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tombolo-io/tombolo/internal/access/istio"
)

// spoiling are edits after which an object may guard nothing; each takes the facts with a plan.
func spoiling() map[string]func(t *rapid.T, f *istio.Facts, w istio.Workload) {
	filter := func(edit func(e *istio.EnvoyFilter)) func(*rapid.T, *istio.Facts, istio.Workload) {
		return func(t *rapid.T, f *istio.Facts, _ istio.Workload) {
			var own []int
			for i, e := range f.EnvoyFilters {
				if e.Metadata.Labels[istio.LabelManagedBy] == istio.ManagedBy {
					own = append(own, i)
				}
			}
			if len(own) > 0 {
				edit(&f.EnvoyFilters[rapid.SampledFrom(own).Draw(t, "EnvoyFilter")])
			}
		}
	}
	patch := func(edit func(p *istio.ConfigPatch)) func(*rapid.T, *istio.Facts, istio.Workload) {
		return filter(func(e *istio.EnvoyFilter) { edit(&e.Spec.ConfigPatches[0]) })
	}
	policy := func(edit func(a *istio.AuthorizationPolicy)) func(*rapid.T, *istio.Facts, istio.Workload) {
		return func(t *rapid.T, f *istio.Facts, _ istio.Workload) {
			if n := len(f.AuthorizationPolicies); n > 0 {
				edit(&f.AuthorizationPolicies[rapid.IntRange(0, n-1).Draw(t, "AuthorizationPolicy")])
			}
		}
	}
	foreign := func(applyTo, operation, value string, match *istio.ListenerMatch) func(*rapid.T, *istio.Facts, istio.Workload) {
		return func(_ *rapid.T, f *istio.Facts, w istio.Workload) {
			e := filterOf(w, "foreign", applyTo, operation, value)
			e.Spec.Priority = 2000
			e.Spec.ConfigPatches[0].Match.Listener = match
			f.EnvoyFilters = append(f.EnvoyFilters, e)
		}
	}
	named := func(name, sub string) *istio.ListenerMatch {
		m := &istio.FilterMatch{Name: name}
		if sub != "" {
			m.SubFilter = &istio.FilterMatch{Name: sub}
		}
		return &istio.ListenerMatch{FilterChain: &istio.ChainMatch{Filter: m}}
	}
	to := `{"name":"short","typed_config":{"@type":"type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
		"stat_prefix":"x","cluster":"` + service("443", "kube-apiserver", "foo") + `"}}`
	guard := istio.GuardName("shoot--p--foo")
	return map[string]func(*rapid.T, *istio.Facts, istio.Workload){
		"nothing":           func(*rapid.T, *istio.Facts, istio.Workload) {},
		"another port":      patch(func(p *istio.ConfigPatch) { p.Match.Listener.PortNumber++ }),
		"no port":           patch(func(p *istio.ConfigPatch) { p.Match.Listener.PortNumber = 0 }),
		"a listener's name": patch(func(p *istio.ConfigPatch) { p.Match.Listener.Name = "0.0.0.0_9443" }),
		"another name": patch(func(p *istio.ConfigPatch) {
			if c := p.Match.Listener.FilterChain; c != nil {
				p.Match.Listener.FilterChain = &istio.ChainMatch{SNI: "api.bar.p.example.org"}
			}
		}),
		"a chain's name": patch(func(p *istio.ConfigPatch) {
			p.Match.Listener.FilterChain = &istio.ChainMatch{Name: "x"}
		}),
		"last":              patch(func(p *istio.ConfigPatch) { p.Patch.Operation = "ADD" }),
		"of a sidecar":      patch(func(p *istio.ConfigPatch) { p.Match.Context = "SIDECAR_INBOUND" }),
		"another kind":      patch(func(p *istio.ConfigPatch) { p.ApplyTo = "HTTP_FILTER" }),
		"a patch less":      filter(func(e *istio.EnvoyFilter) { e.Spec.ConfigPatches = e.Spec.ConfigPatches[1:] }),
		"another namespace": filter(func(e *istio.EnvoyFilter) { e.Metadata.Namespace = "other" }),
		"another workload":  filter(func(e *istio.EnvoyFilter) { e.Spec.WorkloadSelector.Labels = map[string]string{"app": "x"} }),
		"an early priority": filter(func(e *istio.EnvoyFilter) { e.Spec.Priority = -1 }),
		"a header of another case": patch(func(p *istio.ConfigPatch) {
			p.Patch.Value = json.RawMessage(strings.ReplaceAll(string(p.Patch.Value), "reversed-vpn", "Reversed-VPN"))
		}),
		"a filter that is removed":              foreign("NETWORK_FILTER", "REMOVE", "", named(guard, "")),
		"an HTTP filter that is removed":        foreign("HTTP_FILTER", "REMOVE", "", named(manager, "tombolo-access-connect-0")),
		"RBAC of Istio that is removed":         foreign("HTTP_FILTER", "REMOVE", "", named(manager, "envoy.filters.http.rbac")),
		"network RBAC of Istio that is removed": foreign("NETWORK_FILTER", "REMOVE", "", named("envoy.filters.network.rbac", "")),
		"chains that are removed":               foreign("FILTER_CHAIN", "REMOVE", "", &istio.ListenerMatch{PortNumber: tlsPort}),
		"an end before the guard":               foreign("NETWORK_FILTER", "INSERT_FIRST", to, &istio.ListenerMatch{PortNumber: tlsPort}),
		"a filter that is changed": foreign("NETWORK_FILTER", "MERGE", `{"name":"`+guard+`","typed_config":{
			"@type":"type.googleapis.com/envoy.extensions.filters.network.rbac.v3.RBAC","rules":{"action":"LOG"}}}`, named(guard, "")),
		"a dry run": policy(func(a *istio.AuthorizationPolicy) {
			a.Metadata.Annotations = map[string]string{"istio.io/dry-run": "true"}
		}),
		"a policy elsewhere": policy(func(a *istio.AuthorizationPolicy) { a.Metadata.Namespace = "other" }),
		"a policy of the mesh": policy(func(a *istio.AuthorizationPolicy) {
			a.Metadata.Namespace = "istio-system"
			a.Spec.Selector = nil
		}),
		"a rule less": policy(func(a *istio.AuthorizationPolicy) { a.Spec.Rules = a.Spec.Rules[1:] }),
		"no ports": policy(func(a *istio.AuthorizationPolicy) {
			for i := range a.Spec.Rules {
				a.Spec.Rules[i].To = nil
			}
		}),
		"another policy that allows": func(_ *rapid.T, f *istio.Facts, w istio.Workload) {
			f.AuthorizationPolicies = append(f.AuthorizationPolicies, istio.AuthorizationPolicy{Metadata: meta(w.Namespace, "allow"),
				Spec: istio.AuthzSpec{Action: "ALLOW", Rules: []istio.AuthzRule{{When: []istio.AuthzWhen{{Key: "connection.sni",
					Values: []string{"api.foo.p.example.org"}}}}}}})
		},
		"another policy that denies requests": func(_ *rapid.T, f *istio.Facts, w istio.Workload) {
			f.AuthorizationPolicies = append(f.AuthorizationPolicies, istio.AuthorizationPolicy{Metadata: meta(w.Namespace, "deny"),
				Spec: istio.AuthzSpec{Action: "DENY", Rules: []istio.AuthzRule{{When: []istio.AuthzWhen{{
					Key: "request.headers[x]", Values: []string{"y"}}}}}}})
		},
	}
}

// Whatever is spoilt: where the listeners decide otherwise than a list, Coverage says so of that cluster. Where it says
// that a way is open, it is.
func TestCoverageSeesWhatIsSpoilt(t *testing.T) {
	t.Parallel()
	o := start(t)
	edits := spoiling()
	var names []string
	for name := range edits {
		names = append(names, name)
	}
	slices.Sort(names)
	rapid.Check(t, func(t *rapid.T) {
		w := workload(rapid.SampledFrom([]string{istio.Auto, istio.EnvoyFilters, istio.Policies}).Draw(t, "enforcement"), "")
		if rapid.Bool().Draw(t, "no provider") {
			w.Provider = ""
		}
		f := seed(w, shoot("foo", drawList(t, "foo")), shoot("foo-bar", drawList(t, "foo-bar")))
		p, problems := istio.Plan(f, w)
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		f = f.With(p)
		f.EnvoyFilters = copied(t, f.EnvoyFilters)
		f.AuthorizationPolicies = copied(t, f.AuthorizationPolicies)
		what := rapid.SampledFrom(names).Draw(t, "edit")
		edits[what](t, &f, w)
		all := flows(f, w, edges(f)...)
		questions := make([]question, 0, len(all))
		for _, a := range all {
			questions = append(questions, a.question)
		}
		r := o.tell(t, at(f, w, drawPod(t), questions...))
		if r.Error != "" {
			return // istiod refuses it, or the oracle does not know it
		}
		gaps := istio.Coverage(f, w)
		outside := newOutside(t, f, w)
		wrong := map[string]string{} // by cluster and flow
		for i, a := range r.Answers {
			if a.Error != "" || a.None || all[i].open {
				continue
			}
			if got := a.Allow && outside.allow(t, a, all[i].question); got != all[i].want {
				wrong[all[i].of] = fmt.Sprintf("%+v: %v: %+v", all[i].question, got, a)
			}
		}
		for of, why := range wrong {
			if !slices.ContainsFunc(gaps, func(u istio.Uncovered) bool {
				return u.Cluster+"/"+u.Flow == of || u.Cluster == of[:strings.Index(of, "/")] && u.Flow == ""
			}) {
				t.Fatalf("%s: %s is not as its list, and Coverage says %v: %s", what, of, gaps, why)
			}
		}
		for _, u := range gaps {
			if u.Kind == istio.Open && wrong[u.Cluster+"/"+u.Flow] == "" {
				t.Fatalf("%s: Coverage says %v, and it is as its list", what, u)
			}
		}
	})
}

// copied are objects of which none shares anything with a plan.
func copied[T any](t failing, in []T) (out []T) {
	if err := json.Unmarshal([]byte(text(in)), &out); err != nil {
		t.Fatal(err)
	}
	return out
}
