// SPDX-License-Identifier: Apache-2.0

package istio

import (
	"slices"
	"strings"
)

// Injection is what has to change in an EnvoyFilter of somebody else.
type Injection struct {
	Before, After EnvoyFilter
	Loses         bool // a guard is taken out
}

// Ref names the EnvoyFilter.
func (i Injection) Ref() Ref {
	return Ref{KindEnvoyFilter, i.Before.Metadata.Namespace, i.Before.Metadata.Name}
}

// Clusters are those whose guards it puts in, changes or takes out.
func (i Injection) Clusters() []string {
	out := append(i.Before.Guarded(), i.After.Guarded()...)
	slices.Sort(out)
	return slices.Compact(out)
}

// Injections are what has to change in the EnvoyFilters of others that count at some gateways, and in those of former
// namespaces. Guards are taken out of one only when all others are in it, so that putting them in waits for nothing.
func Injections(f Facts, former []string, workloads ...Workload) (out []Injection) {
	var adding []EnvoyFilter
	for _, e := range f.EnvoyFilters {
		reads := func(w Workload) bool { return w.Reads(e.Metadata.Namespace) }
		owns := func(w Workload) bool { return w.owns(e.Metadata) }
		if slices.ContainsFunc(workloads, owns) ||
			e.Metadata.Labels[LabelManagedBy] == ManagedBy && slices.Contains(former, e.Metadata.Namespace) {
			continue
		}
		if (slices.ContainsFunc(workloads, reads) || slices.Contains(former, e.Metadata.Namespace)) &&
			slices.ContainsFunc(e.Spec.ConfigPatches, ConfigPatch.adds) {
			adding = append(adding, e)
		}
	}
	if len(adding) == 0 {
		return nil
	}
	guards := wanted(f, adding, workloads)
	for i, e := range adding {
		whole, changed := e.guarded(guards[i], true)
		if !changed {
			continue
		}
		if after, changed := e.guarded(guards[i], false); changed {
			out = append(out, Injection{Before: e, After: after})
		} else {
			out = append(out, Injection{e, whole, true})
		}
	}
	return out
}

// Guarded are the clusters whose guards are in the chains that an EnvoyFilter of somebody else adds, sorted.
func (e EnvoyFilter) Guarded() (out []string) {
	for _, p := range e.Spec.ConfigPatches {
		chains, err := addedChains(p)
		if err != nil {
			continue
		}
		for _, c := range chains {
			filters, _ := field(c.value, "filters").([]any)
			for _, one := range filters {
				if name, ok := field(one, "name").(string); ok && isGuard(name) {
					out = append(out, strings.TrimPrefix(name, guardPrefix))
				}
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// SameButGuards reports whether two states of an EnvoyFilter of somebody else differ in nothing but the guards in the
// chains that it adds.
func SameButGuards(a, b EnvoyFilter) bool {
	x, _ := a.guarded(nil, true)
	y, _ := b.guarded(nil, true)
	return sameJSON(text(x.Spec), text(y.Spec)) && sameJSON(text(a.Metadata.Labels), text(b.Metadata.Labels))
}
