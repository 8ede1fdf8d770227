// SPDX-License-Identifier: Apache-2.0

// Package access keeps the objects of Istio that enforce access lists as policies say. One replica writes; what it does
// follows from the objects that are there, so that nothing is lost when another one goes on.
package access

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/istio"
	"github.com/tombolo-io/tombolo/internal/control/clusters"
	"github.com/tombolo-io/tombolo/internal/control/controlconf"
)

// judged is what follows from the objects that are there.
type judged struct {
	world    clusters.World
	facts    istio.Facts
	want     istio.Planned
	hidden   []string        // where lists may not see the addresses of clients
	problems []istio.Problem // of no cluster: what gateways do not say
	steps    []istio.Step
	foreign  []istio.Ref       // somebody else has objects of these names
	held     []istio.Ref       // they stay as they are, because it is not known what was in force
	large    map[istio.Ref]int // they stay as they are, because they would have so many bytes
}

// judge decides what has to be written and removed. facts are the objects as they stand. Held worlds change nothing; of
// a tenant that is lost, its own objects stay and those that it shares with others. An object that is too large stays
// as it is too, with all by which the same cluster was guarded before.
func judge(c controlconf.Access, w clusters.World, facts istio.Facts) judged {
	facts.Clusters = w.Clusters
	out := judged{world: w, facts: facts}
	for _, g := range c.Gateways {
		planned, problems := istio.Plan(facts, g)
		out.want = out.want.And(planned)
		for _, p := range problems {
			if p.Cluster == "" && !slices.Contains(out.problems, p) {
				out.problems = append(out.problems, p)
			}
		}
	}
	out.hidden = hidden(facts, c.Gateways)
	out.problems = append(out.problems, unselected(facts, c.Gateways)...)
	out.want.Injected = istio.Injections(facts, c.Former, c.Gateways...)
	if len(w.Held()) > 0 {
		return out
	}
	var ours istio.Planned
	ours, out.foreign = apart(out.want, others(facts))
	have := istio.Owned(facts, c.Namespaces()...)
	lost := map[string]bool{}
	for _, t := range w.Tenants {
		if t.Lost {
			lost[t.Name] = true
		}
	}
	out.large = ours.TooLarge()
	owner := owners(have, out.want)
	stuck, shared := map[string]bool{}, false
	for r := range out.large {
		stuck[owner[r]], shared = true, shared || owner[r] == ""
	}
	stays := func(r istio.Ref, loses bool) bool {
		if _, large := out.large[r]; large {
			return true
		}
		of := owner[r]
		switch held := len(lost) > 0 && (loses || of == "" || lost[of]); { // what would replace it may be held
		case held:
			out.held = append(out.held, r)
			return true
		case loses && len(stuck) > 0:
			return shared || of == "" || stuck[of]
		}
		return false
	}
	for _, s := range istio.Order(have, ours) {
		if s.Loses && len(out.foreign) > 0 { // what would replace it cannot be written
			break
		}
		goes := func(r istio.Ref) bool { return stays(r, s.Loses) }
		s.Write = slices.DeleteFunc(slices.Clone(s.Write), goes)
		s.Remove = slices.DeleteFunc(slices.Clone(s.Remove), goes)
		if len(s.Write)+len(s.Remove) > 0 {
			out.steps = append(out.steps, s)
		}
	}
	return out
}

// unselected are gateways for which there is no Gateway, while there are some for none of them: labels are missing in
// the configuration. A Gateway is for pods that have all labels that it selects by.
func unselected(f istio.Facts, gateways []istio.Workload) (out []istio.Problem) {
	of := func(g istio.Gateway, w istio.Workload) bool { return has(w, g.Spec.Selector) }
	stray := slices.IndexFunc(f.Gateways, func(g istio.Gateway) bool {
		return !slices.ContainsFunc(gateways, func(w istio.Workload) bool { return of(g, w) })
	})
	for _, w := range gateways {
		if stray < 0 || slices.ContainsFunc(f.Gateways, func(g istio.Gateway) bool { return of(g, w) }) {
			continue
		}
		m := f.Gateways[stray].Metadata
		var labels []string
		for _, k := range slices.Sorted(maps.Keys(f.Gateways[stray].Spec.Selector)) {
			labels = append(labels, k+"="+f.Gateways[stray].Spec.Selector[k])
		}
		out = append(out, istio.Problem{Object: "gateway in " + w.Namespace, What: fmt.Sprintf("no Gateway selects its pods "+
			"by labels in its selector, and Gateway %s/%s selects by %s, which no gateway has: give selector all labels that "+
			"Gateways select by", m.Namespace, m.Name, strings.Join(labels, ","))})
	}
	return out
}

// apart is a plan without the objects whose names somebody else has, and these.
func apart(p istio.Planned, taken map[istio.Ref]bool) (out istio.Planned, foreign []istio.Ref) {
	gone := func(kind string, m istio.Meta) bool {
		r := istio.Ref{Kind: kind, Namespace: m.Namespace, Name: m.Name}
		if taken[r] {
			foreign = append(foreign, r)
		}
		return taken[r]
	}
	out = p
	out.ConfigMaps = slices.DeleteFunc(slices.Clone(p.ConfigMaps), func(o istio.ConfigMap) bool {
		return gone(istio.KindConfigMap, o.Metadata)
	})
	out.AuthorizationPolicies = slices.DeleteFunc(slices.Clone(p.AuthorizationPolicies),
		func(o istio.AuthorizationPolicy) bool { return gone(istio.KindAuthorizationPolicy, o.Metadata) })
	out.EnvoyFilters = slices.DeleteFunc(slices.Clone(p.EnvoyFilters), func(o istio.EnvoyFilter) bool {
		return gone(istio.KindEnvoyFilter, o.Metadata)
	})
	return out, foreign
}

// others are the objects that somebody else wrote.
func others(f istio.Facts) map[istio.Ref]bool {
	out := map[istio.Ref]bool{}
	add := func(kind string, m istio.Meta) {
		if m.Labels[istio.LabelManagedBy] != istio.ManagedBy {
			out[istio.Ref{Kind: kind, Namespace: m.Namespace, Name: m.Name}] = true
		}
	}
	for _, o := range f.EnvoyFilters {
		add(istio.KindEnvoyFilter, o.Metadata)
	}
	for _, o := range f.AuthorizationPolicies {
		add(istio.KindAuthorizationPolicy, o.Metadata)
	}
	for _, o := range f.ConfigMaps {
		add(istio.KindConfigMap, o.Metadata)
	}
	return out
}

// gate lets a step begin when the gateways had time for the one before. It belongs to one goroutine.
type gate struct {
	settle time.Duration
	began  time.Time // before that somebody else may have written
	after  map[istio.Ref]time.Time
}

// due says what is done now, and when to look again; zero: when something changes.
func (g *gate) due(steps []istio.Step, now time.Time) (write, remove []istio.Ref, again time.Time) {
	old := g.after
	g.after = map[istio.Ref]time.Time{}
	for i, s := range steps {
		waited := waits(steps[:i], old)
		for _, r := range slices.Concat(s.Write, s.Remove) {
			at, known := old[r]
			if i > 0 && (!known || waited) { // what comes before is written now, or later
				at = now.Add(g.settle)
			}
			if first := g.began.Add(g.settle); s.Loses && at.Before(first) {
				at = first
			}
			if !at.IsZero() {
				g.after[r] = at
			}
			switch {
			case at.After(now):
				if again.IsZero() || at.Before(again) {
					again = at
				}
			case slices.Contains(s.Remove, r):
				remove = append(remove, r)
			default:
				write = append(write, r)
			}
		}
	}
	return write, remove, again
}

// waits reports whether some of the objects of steps had to wait themselves.
func waits(steps []istio.Step, after map[istio.Ref]time.Time) bool {
	for _, s := range steps {
		for _, r := range slices.Concat(s.Write, s.Remove) {
			if _, ok := after[r]; ok {
				return true
			}
		}
	}
	return false
}

// failed lets everything wait again that comes after what could not be written.
func (g *gate) failed(now time.Time) {
	for r := range g.after {
		g.after[r] = now.Add(g.settle)
	}
}
