// SPDX-License-Identifier: Apache-2.0

package istio

// MostBytes bounds an object that is written.
const MostBytes = mostBytes

// TooLarge are the objects of a plan that have more than MostBytes, with what they have: one cluster's part is never
// divided.
func (p Planned) TooLarge() map[Ref]int {
	out := map[Ref]int{}
	note := func(kind string, m Meta, bytes int) {
		if bytes > MostBytes {
			out[Ref{kind, m.Namespace, m.Name}] = bytes
		}
	}
	for _, o := range p.EnvoyFilters {
		n := overhead
		for _, patch := range o.Spec.ConfigPatches {
			n += len(patch.Patch.Value) + 512
		}
		note(KindEnvoyFilter, o.Metadata, n)
	}
	for _, o := range p.AuthorizationPolicies {
		note(KindAuthorizationPolicy, o.Metadata, overhead+len(text(o.Spec)))
	}
	for _, o := range p.ConfigMaps {
		n := overhead
		for key, value := range o.Data {
			n += len(key) + len(value)
		}
		note(KindConfigMap, o.Metadata, n)
	}
	return out
}
