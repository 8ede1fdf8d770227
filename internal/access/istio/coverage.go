// SPDX-License-Identifier: Apache-2.0

package istio

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/base/plan"
)

// Gap is what is wrong with a way.
type Gap string

// The gaps.
const (
	Open    Gap = "open"    // nothing guards it
	Doubled Gap = "doubled" // several guards do: the narrowest holds
	Differs Gap = "differs" // the guard decides otherwise than the list
	Unknown Gap = "unknown" // what it decides cannot be known
)

// Uncovered is a way into a cluster that is not guarded as its list says.
type Uncovered struct {
	Cluster string
	Flow    string
	Way     string // the chain or the object
	Kind    Gap
	Why     string
}

func (u Uncovered) String() string {
	return fmt.Sprintf("%s/%s by the %s: %s: %s", u.Cluster, u.Flow, u.Way, u.Kind, u.Why)
}

// Coverage judges every way into clusters with lists by the objects as they stand: it has to be guarded once, and the
// guards have to decide of every address what the list does. With names it looks at these clusters only.
func Coverage(f Facts, w Workload, names ...string) []Uncovered {
	chains, problems := Chains(f, w)
	e := newEffects(f, w)
	exposed := slices.ContainsFunc(f.Services, w.selected)
	var out []Uncovered
	for _, c := range f.Clusters {
		if !c.listed() || len(names) > 0 && !slices.Contains(names, c.Name) {
			continue
		}
		for _, chain := range chains {
			for _, r := range chain.Reaches {
				if r.Cluster != c.Name {
					continue
				}
				u := Uncovered{Cluster: c.Name, Flow: r.Flow, Way: chain.String(), Kind: Unknown,
					Why: "it leads to the cluster, and none of the cluster's ways is it"}
				if r.way >= 0 {
					u = e.judge(c, chain, r, u)
				}
				if u.Kind != "" {
					out = append(out, u)
				}
			}
		}
		for _, p := range problems {
			if p.Cluster == c.Name {
				out = append(out, Uncovered{Cluster: c.Name, Flow: p.Flow, Way: p.Object, Kind: Unknown, Why: p.What})
			}
		}
		if !exposed {
			out = append(out, Uncovered{Cluster: c.Name, Way: "gateway of namespace " + w.Namespace, Kind: Unknown,
				Why: "no Service there selects pods with the labels " + text(w.Labels) + ": give all labels of the gateway's pods"})
		}
		out = append(out, beside(f, c)...)
	}
	slices.SortStableFunc(out, func(a, b Uncovered) int {
		return cmp.Or(strings.Compare(a.Cluster, b.Cluster), strings.Compare(a.Flow, b.Flow), strings.Compare(a.Way, b.Way))
	})
	return out
}

// judge compares what the guards of a chain decide with the list of a way. The kind is empty if all is well.
func (e *effects) judge(c Cluster, chain Chain, r Reach, u Uncovered) Uncovered {
	way := c.Ways[r.way]
	u.Kind, u.Why = "", ""
	if !way.Listed() {
		return u
	}
	for _, s := range shapes(c, chain, r) {
		v := e.view(chain, s)
		own := v.own()
		for _, a := range samples(way.List, v) {
			want := way.List.Admits(a)
			got, by, err := v.allows(a)
			switch {
			case err != nil:
				u.Kind, u.Why = Unknown, err.Error()
			case got == want:
				continue
			case len(own) == 0 && got:
				u.Kind, u.Why = Open, "no guard is in it"
			case got:
				u.Kind, u.Why = Differs, fmt.Sprintf("it lets %s pass to %s, which the list refuses", a, s.asked())
			default:
				u.Kind, u.Why = Differs, fmt.Sprintf("it refuses %s for %s, which the list admits: %s", a, s.asked(), by)
			}
			return u
		}
		if len(own) > 1 {
			u.Kind, u.Why = Doubled, "guards: "+strings.Join(own, ", ")
		}
	}
	if others := chain.besides(c.Name); chain.Kind == Added && u.Kind == "" && len(others) > 0 {
		u.Kind, u.Why = Differs, "its guard is in the way of others too: the chain leads to "+strings.Join(others, ", ")
	}
	return u
}

// besides are the other clusters that a chain leads to.
func (c Chain) besides(cluster string) (out []string) {
	for _, r := range c.Reaches {
		if r.Cluster != cluster && !slices.Contains(out, r.Cluster) {
			out = append(out, r.Cluster)
		}
	}
	return out
}

// own are the guards that the controller wrote and that have a say.
func (v view) own() (out []string) {
	for _, g := range v.guards {
		if g.own && (len(g.live.policies) > 0 || !g.live.deny) {
			out = append(out, g.object)
		}
	}
	return out
}

// samples are addresses of which each stands for all between two places where a verdict may change: of the list, or of
// what is written.
func samples(l policy.SourceList, v view) []netip.Addr {
	var out []netip.Addr
	add := func(p netip.Prefix) {
		r := plan.RangeOf(p.Masked())
		for _, a := range []netip.Addr{r.From, r.To, r.From.Prev(), r.To.Next()} {
			if a.IsValid() {
				out = append(out, a)
			}
		}
	}
	for _, p := range whole() {
		add(p)
	}
	for _, e := range slices.Concat(l.Allow, l.Deny) {
		add(e.Prefix)
	}
	for _, g := range v.guards {
		g.live.starts(add)
	}
	if v.starts != nil {
		v.starts(add)
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}

// Strays are ways into clusters with lists at pods that are none of the gateways: nobody guards these. Such pods are
// found by Gateways that select no gateway, and by Services in any namespace whose pods a Gateway selects.
func Strays(f Facts, workloads ...Workload) (out []Uncovered) {
	for _, g := range f.Gateways {
		if slices.ContainsFunc(workloads, func(w Workload) bool { return subset(g.Spec.Selector, w.Labels) }) {
			continue
		}
		alone := f
		alone.Gateways, alone.EnvoyFilters = []Gateway{g}, nil
		out = append(out, stray(alone, Workload{Labels: g.Spec.Selector}, "Gateway "+g.Metadata.key())...)
	}
	known := map[string]bool{}
	for _, s := range f.Services {
		key := s.Metadata.Namespace + text(s.Spec.Selector)
		if known[key] || slices.ContainsFunc(workloads, func(w Workload) bool { return w.mayBe(s) }) {
			continue
		}
		known[key] = true
		there := f
		there.Gateways = slices.DeleteFunc(slices.Clone(f.Gateways), func(g Gateway) bool {
			return len(g.Spec.Selector) == 0 || !subset(g.Spec.Selector, s.Spec.Selector)
		})
		if len(there.Gateways) > 0 {
			pods := Workload{Namespace: s.Metadata.Namespace, Labels: s.Spec.Selector}
			out = append(out, stray(there, pods, "Service "+s.Metadata.key())...)
		}
	}
	return out
}

// stray are the ways at some pods.
func stray(f Facts, pods Workload, object string) (out []Uncovered) {
	chains, _ := Chains(f, pods)
	for _, c := range f.Clusters {
		for _, chain := range chains {
			for _, r := range chain.Reaches {
				if r.Cluster == c.Name && c.listed() && (r.way < 0 || c.Ways[r.way].Listed()) {
					out = append(out, Uncovered{Cluster: c.Name, Flow: r.Flow, Way: chain.String(), Kind: Open,
						Why: object + " is for pods that are none of the gateways with access lists"})
				}
			}
		}
	}
	return out
}

// selected reports whether a Service leads to the gateway.
func (w Workload) selected(s Service) bool {
	return s.Metadata.Namespace == w.Namespace && len(s.Spec.Selector) > 0 && subset(s.Spec.Selector, w.Labels)
}

// mayBe reports whether the pods of a Service may be the gateway's: not all of their labels have to be known.
func (w Workload) mayBe(s Service) bool {
	return w.selected(s) || s.Metadata.Namespace == w.Namespace && subset(w.Labels, s.Spec.Selector)
}
