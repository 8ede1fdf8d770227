// SPDX-License-Identifier: Apache-2.0

package istio

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Inject puts guards into the filter chains that an EnvoyFilter of somebody else adds: no other EnvoyFilter can
// patch these. Guards are the first filters of their chain, and known by their names; a guard that is there and is not
// wanted any more is taken out. Everything else keeps its bytes. The result is the same if it is injected into
// again; changed says whether it differs at all.
//
// A chain that leads to several clusters gets the guard of each that has a list: who may reach one of them only is
// refused, and Coverage reports it. A chain that leads wherever a client wants gets none, and is reported. A chain of a
// listener at a pipe gets none: who comes there has no address, and was judged where he came in.
func Inject(e EnvoyFilter, f Facts, workloads ...Workload) (out EnvoyFilter, changed bool) {
	return e.guarded(wanted(f, []EnvoyFilter{e}, workloads)[0], true)
}

// Insert is Inject for one who does not know when a guard may go: none is taken out, and those that are not wanted come
// after those that are.
func Insert(e EnvoyFilter, f Facts, workloads ...Workload) (out EnvoyFilter, changed bool) {
	return e.guarded(wanted(f, []EnvoyFilter{e}, workloads)[0], false)
}

// spot is a chain of an EnvoyFilter: its patch, and where it is among those of the patch.
type spot struct{ patch, chain int }

// wanted are the guards of the chains that some EnvoyFilters add, for each of them.
func wanted(f Facts, filters []EnvoyFilter, workloads []Workload) []map[spot][]filter {
	out := make([]map[spot][]filter, len(filters))
	for _, w := range workloads {
		chains, _ := chainsOf(Facts{EnvoyFilters: filters, Clusters: f.Clusters}, w, f.EnvoyFilters)
		for _, c := range chains {
			g := injected(f.Clusters, c)
			if g == nil || c.Kind != Added {
				continue
			}
			if out[c.filter] == nil {
				out[c.filter] = map[spot][]filter{}
			}
			out[c.filter][spot{c.patch, c.chain}] = g
		}
	}
	return out
}

// guarded puts guards into an EnvoyFilter, and takes others out if it may.
func (e EnvoyFilter) guarded(wanted map[spot][]filter, takes bool) (out EnvoyFilter, changed bool) {
	out = e
	for i, p := range e.Spec.ConfigPatches {
		chains, err := addedChains(p)
		if err != nil {
			continue
		}
		value := p.Patch.Value
		for _, c := range chains {
			if guards := wanted[spot{i, c.at}]; !c.has(guards, takes) {
				value = edit(value, place(p, c.at), guards, takes)
			}
		}
		if bytes.Equal(value, p.Patch.Value) {
			continue
		}
		if !changed {
			out.Spec.ConfigPatches, changed = slices.Clone(e.Spec.ConfigPatches), true
		}
		out.Spec.ConfigPatches[i].Patch.Value, out.Spec.ConfigPatches[i].chains = value, nil
	}
	return out, changed
}

// has reports whether a chain has these guards, first and each once; alone: and no others.
func (c addedChain) has(guards []filter, alone bool) bool {
	filters, _ := field(c.value, "filters").([]any)
	if len(c.texts) < len(guards) {
		return false
	}
	for i, g := range guards {
		if c.texts[i] != string(g.raw()) {
			return false
		}
	}
	return !slices.ContainsFunc(filters[len(guards):], func(f any) bool {
		name, _ := field(f, "name").(string)
		return goes(name, guards, alone)
	})
}

// goes reports whether a filter of some name makes place for guards: it is one of them, or any other guard.
func goes(name string, guards []filter, others bool) bool {
	return isGuard(name) && (others || slices.ContainsFunc(guards, func(g filter) bool { return g.Name == name }))
}

// injected are the guards for an added chain, sorted by their clusters.
func injected(clusters []Cluster, chain Chain) (out []filter) {
	if chain.Others {
		return nil
	}
	for _, c := range clusters {
		var ways []int
		for _, r := range chain.Reaches {
			if r.Cluster == c.Name && r.way >= 0 && c.Ways[r.way].Listed() {
				ways = append(ways, r.way)
			}
		}
		switch len(ways) {
		case 0:
			continue
		case 1:
			out = append(out, own(c, ways[0]))
			continue
		}
		f := filter{GuardName(c.Name), RBAC{Type: typeNetworkRBAC, StatPrefix: GuardName(c.Name),
			Rules: &Rules{Action: "DENY", Policies: map[string]RBACPolicy{}}}}
		for _, way := range ways {
			if who := refused(c.Ways[way].List); len(who) > 0 {
				f.TypedConfig.Rules.Policies[c.label(way)] = RBACPolicy{anything(), who}
			}
		}
		if len(f.TypedConfig.Rules.Policies) > 0 {
			out = append(out, f)
		}
	}
	slices.SortFunc(out, func(a, b filter) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// place is where the filters of a chain are in the value of a patch: each step is a field by its two names, or an
// index.
func place(p ConfigPatch, at int) []any {
	filters := [2]string{"filters", "filters"}
	switch {
	case p.ApplyTo == "FILTER_CHAIN":
		return []any{filters}
	case at < 0:
		return []any{[2]string{"default_filter_chain", "defaultFilterChain"}, filters}
	}
	return []any{[2]string{"filter_chains", "filterChains"}, at, filters}
}

// edit puts guards first into the list at a place, and takes those out that have their names; others: all other guards.
// Without a list there nothing is done.
func edit(value json.RawMessage, at []any, guards []filter, others bool) json.RawMessage {
	from, to, ok := locate(value, at)
	if !ok {
		return value
	}
	var list []json.RawMessage
	if json.Unmarshal(value[from:to], &list) != nil || list == nil {
		return value
	}
	var next []json.RawMessage
	for _, g := range guards {
		next = append(next, g.raw())
	}
	var rest []json.RawMessage
	for _, f := range list {
		switch name := filterName(f); {
		case goes(name, guards, others):
		case isGuard(name):
			next = append(next, f)
		default:
			rest = append(rest, f)
		}
	}
	next = append(next, rest...)
	if slices.EqualFunc(list, next, alike) {
		return value
	}
	var out bytes.Buffer
	out.Write(value[:from])
	out.WriteByte('[')
	for i, f := range next {
		if i > 0 {
			out.WriteByte(',')
		}
		out.Write(f)
	}
	out.WriteByte(']')
	out.Write(value[to:])
	return out.Bytes()
}

func filterName(raw json.RawMessage) string {
	var f struct {
		Name string `json:"name"`
	}
	if json.Unmarshal(raw, &f) != nil {
		return ""
	}
	return f.Name
}

// alike reports whether two values are the same but for the order of their fields and for spaces.
func alike(a, b json.RawMessage) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}

// locate finds the bytes of a value within another one.
func locate(raw json.RawMessage, at []any) (from, to int, ok bool) {
	from, to = 0, len(raw)
	for _, step := range at {
		f, t, ok := child(raw[from:to], step)
		if !ok {
			return 0, 0, false
		}
		from, to = from+f, from+t
	}
	return from, to, true
}

// child finds the bytes of a field or of an element. Of a field that is there twice the last one counts.
func child(raw json.RawMessage, step any) (from, to int, ok bool) {
	d := json.NewDecoder(bytes.NewReader(raw))
	open, err := d.Token()
	names, isField := step.([2]string)
	index, _ := step.(int)
	if err != nil || isField && open != json.Delim('{') || !isField && open != json.Delim('[') {
		return 0, 0, false
	}
	for i := 0; d.More(); i++ {
		hit := i == index
		if isField {
			key, err := d.Token()
			if err != nil {
				return 0, 0, false
			}
			hit = key == names[0] || key == names[1]
		}
		var v json.RawMessage
		if d.Decode(&v) != nil {
			return 0, 0, false
		}
		if end := int(d.InputOffset()); hit {
			from, to, ok = end-len(v), end, true
		}
	}
	return from, to, ok
}

// JSONPatch is one operation of RFC 6902.
type JSONPatch struct {
	Op    string          `json:"op"`
	Path  string          `json:"path"`
	Value json.RawMessage `json:"value,omitempty"`
}

// Changes are the operations that turn an EnvoyFilter into what Inject made of it.
func Changes(before, after EnvoyFilter) (out []JSONPatch) {
	for i, p := range after.Spec.ConfigPatches {
		if i < len(before.Spec.ConfigPatches) && !bytes.Equal(p.Patch.Value, before.Spec.ConfigPatches[i].Patch.Value) {
			out = append(out, JSONPatch{"replace", fmt.Sprintf("/spec/configPatches/%d/patch/value", i), p.Patch.Value})
		}
	}
	return out
}
