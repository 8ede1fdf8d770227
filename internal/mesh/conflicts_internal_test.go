// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/roster"
)

func TestConflictsAreProblems(t *testing.T) {
	named := func(id string) string { return map[string]string{"m2": "two"}[id] }
	got := problemsOf([]roster.Conflict{
		{Field: roster.FieldKey, Value: "KEY", Kept: roster.Claimant{ID: "m1"}, Refused: roster.Claimant{ID: "m3"}, Why: "the key is this node's"},
		{Field: roster.FieldNode, Value: "x", Kept: roster.Claimant{ID: "m2"}, Refused: roster.Claimant{ID: "m1"}, Why: "it was first"},
	}, "m1", "one", named)
	for i, want := range []Problem{{Node: "m3", Other: "one", Why: "publicKey KEY is that of one: the key is this node's"}, {Node: "one", Other: "two", Why: "node x is that of two: it was first"}} {
		if g := got[i]; g.Kind != "conflict" || g.Node != want.Node || g.Other != want.Other || !strings.HasPrefix(g.Why, want.Why) {
			t.Errorf("%+v", g)
		}
	}
}
