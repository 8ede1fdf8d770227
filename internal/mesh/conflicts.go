// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"cmp"
	"fmt"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
	"github.com/tombolo-io/tombolo/internal/mesh/topology"
)

// problemsOf shows what two members claim and one has: a member that has lost its name or key to another
// one is a peer without it, or none. A copied key shows on both machines.
func problemsOf(conflicts []roster.Conflict, self, node string, named func(id string) string) []Problem {
	name := func(id string) string {
		if id == self {
			return node
		}
		return cmp.Or(named(id), id)
	}
	called := func(id string) string { // in a text: a name may be what both claim
		if n := name(id); n != id {
			return n + " (" + id + ")"
		}
		return "member " + id
	}
	conflicts = conflicts[:min(len(conflicts), limit.RoutingProblems)]
	out := make([]Problem, 0, len(conflicts))
	for _, c := range conflicts {
		out = append(out, Problem{
			Kind: "conflict", Node: name(c.Refused.ID), Other: name(c.Kept.ID),
			Why: fmt.Sprintf("%s %s of %s is that of %s: %s", c.Field, c.Value, called(c.Refused.ID), called(c.Kept.ID), c.Why),
		})
	}
	return out
}

// problemOf is a problem of the plan as it is shown. A member that has lost its name to another one is
// known by its id.
func problemOf(q topology.Problem) Problem {
	return Problem{Kind: string(q.Kind), Node: cmp.Or(q.Node, q.Member), Range: q.Range, Other: q.Other, Why: q.Why}
}
