// SPDX-License-Identifier: Apache-2.0

package access

import (
	"context"
	"encoding/json"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-io/tombolo/internal/access/istio"
)

// patchOf is a change as RFC 6902 has it. With a version it holds for that state of the object alone: the API server
// answers with a conflict if there is another one, while a failed test could not be told from other refusals.
func patchOf(i istio.Injection, version string) ([]byte, error) {
	ops := istio.Changes(i.Before, i.After)
	if version != "" {
		text, err := json.Marshal(version)
		if err != nil {
			return nil, err
		}
		ops = append(ops, istio.JSONPatch{Op: "replace", Path: "/metadata/resourceVersion", Value: text})
	}
	return json.Marshal(ops)
}

// inject patches an EnvoyFilter of somebody else, if nobody wrote it meanwhile. That it is gone is no error.
func (w writer) inject(ctx context.Context, i istio.Injection) error {
	data, err := patchOf(i, i.Before.Metadata.ResourceVersion)
	if err != nil {
		return err
	}
	return client.IgnoreNotFound(
		w.client.Patch(ctx, bare(i.Ref()), client.RawPatch(types.JSONPatchType, data), fieldOwner))
}
