// SPDX-License-Identifier: Apache-2.0

package ipsec

import (
	"slices"
	"testing"
)

// TestErrors: what the kernel counts is read, whatever else it counts.
func TestErrors(t *testing.T) {
	got := countErrors("XfrmInError             \t0\nXfrmInNoStates          \t4\nXfrmNew 7\nXfrmOutPolBlock -\nodd\n")
	if len(got) != len(ErrorNames()) {
		t.Fatalf("%d errors", len(got))
	}
	for _, e := range got {
		want := map[string]uint64{"XfrmInNoStates": 4}[e.Name]
		if e.Packets != want || e.Means == "" {
			t.Errorf("%+v, want %d packets", e, want)
		}
	}
	if names := slices.Sorted(slices.Values(ErrorNames())); len(slices.Compact(names)) != len(got) {
		t.Error("a name stands there twice")
	}
}
