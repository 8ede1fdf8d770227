// SPDX-License-Identifier: Apache-2.0

package istio_test

import (
	"encoding/json"
	"testing"

	"github.com/tombolo-io/tombolo/internal/access/istio"
)

// TestWrittenValuesAreSorted holds the fields of what is written in the order in which an API server returns them, so
// that an object that is as it should be is known by its text.
func TestWrittenValuesAreSorted(t *testing.T) {
	f := manyShoots(2)
	for _, enforcement := range istio.Enforcements() {
		written, _ := istio.Plan(f, gateway(enforcement))
		for _, e := range written.EnvoyFilters {
			for i, p := range e.Spec.ConfigPatches {
				var v any
				if len(p.Patch.Value) == 0 {
					continue
				}
				if err := json.Unmarshal(p.Patch.Value, &v); err != nil {
					t.Fatal(err)
				}
				if sorted, err := json.Marshal(v); err != nil || string(sorted) != string(p.Patch.Value) {
					t.Errorf("%s: patch %d of %s is\n%s, sorted\n%s", enforcement, i, e.Metadata.Name, p.Patch.Value, sorted)
				}
			}
		}
	}
}
