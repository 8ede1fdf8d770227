// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/discovery/roster"
	"github.com/tombolo-io/tombolo/internal/mesh/topology"
)

func TestConflictsAreProblems(t *testing.T) {
	named := func(id string) string { return map[string]string{"m2": "two"}[id] }
	got := problemsOf([]roster.Conflict{
		{Field: roster.FieldKey, Value: "KEY", Kept: roster.Claimant{ID: "m1"}, Refused: roster.Claimant{ID: "m3"}, Why: "the key is this node's"},
		{Field: roster.FieldNode, Value: "x", Kept: roster.Claimant{ID: "m2"}, Refused: roster.Claimant{ID: "m1"}, Why: "it was first"},
	}, "m1", "one", named)
	for i, want := range []Problem{{Node: "m3", Other: "one", Why: "publicKey KEY of member m3 is that of one (m1): the key is this node's"}, {Node: "one", Other: "two", Why: "node x of one (m1) is that of two (m2): it was first"}} {
		if g := got[i]; g.Kind != "conflict" || g.Node != want.Node || g.Other != want.Other || !strings.HasPrefix(g.Why, want.Why) {
			t.Errorf("%+v", g)
		}
	}
}

// TestProblemsOfThePlan name a member that has no name by its id.
func TestProblemsOfThePlan(t *testing.T) {
	for _, c := range []struct{ node, want string }{{"b", "b"}, {"", "m2"}} {
		if p := problemOf(topology.Problem{Kind: topology.Twice, Member: "m2", Node: c.node, Other: "m3", Why: "why"}); p.Node != c.want || p.Kind != "twice" || p.Other != "m3" || p.Why != "why" {
			t.Errorf("%+v", p)
		}
	}
}
