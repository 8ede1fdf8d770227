// SPDX-License-Identifier: Apache-2.0

package access

import (
	"context"
	"encoding/json"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-io/tombolo/internal/access/istio"
)

// injection is an EnvoyFilter of somebody else whose chains do not have the guards that they should.
type injection struct {
	ref           istio.Ref
	before, after istio.EnvoyFilter
}

// injections are those of some gateways. The webhook has put guards into what was written; what changed since then,
// such as a list, is found here.
func injections(f istio.Facts, gateways []istio.Workload) (out []injection) {
	for _, e := range f.EnvoyFilters {
		if len(e.Spec.ConfigPatches) == 0 || e.Metadata.Labels[istio.LabelManagedBy] == istio.ManagedBy ||
			!slices.ContainsFunc(gateways, func(w istio.Workload) bool { return w.Reads(e.Metadata.Namespace) }) {
			continue
		}
		if after, changed := istio.Inject(e, f, gateways...); changed {
			ref := istio.Ref{Kind: istio.KindEnvoyFilter, Namespace: e.Metadata.Namespace, Name: e.Metadata.Name}
			out = append(out, injection{ref, e, after})
		}
	}
	return out
}

// patch is the change as RFC 6902 has it. With a version it holds for that state of the object alone.
func (i injection) patch(version string) ([]byte, error) {
	var ops []any
	for _, c := range istio.Changes(i.before, i.after) {
		ops = append(ops, c)
	}
	if version != "" { // the API server answers with a conflict if there is another one
		ops = append(ops, map[string]string{"op": "replace", "path": "/metadata/resourceVersion", "value": version})
	}
	return json.Marshal(ops)
}

// inject changes the EnvoyFilters of others. It says which ones cannot be changed now, and why.
func (l *loop) inject(ctx context.Context, j judged, versions map[istio.Ref]string) map[istio.Ref]string {
	failed := map[istio.Ref]string{}
	if len(j.world.Held()) > 0 {
		return failed
	}
	for _, i := range injections(j.facts, l.cfg.Gateways) {
		l.note(failed, "inject", i.ref, l.writer.inject(ctx, i, versions[i.ref]))
	}
	return failed
}

// inject patches an EnvoyFilter of somebody else, if nobody wrote it meanwhile.
func (w writer) inject(ctx context.Context, i injection, version string) error {
	data, err := i.patch(version)
	if err != nil {
		return err
	}
	return w.client.Patch(ctx, bare(i.ref), client.RawPatch(types.JSONPatchType, data), fieldOwner)
}
