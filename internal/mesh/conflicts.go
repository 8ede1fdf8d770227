// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"fmt"

	"github.com/tombolo-io/tombolo/internal/limit"
	"github.com/tombolo-io/tombolo/internal/roster"
)

// problemsOf are what two members claim and one has: who has lost its name or key to another
// one is a peer without it, or none. A copied key shows on both machines.
func problemsOf(conflicts []roster.Conflict, self, node string, named func(id string) string) []Problem {
	name := func(id string) string {
		if id == self {
			return node
		}
		if n := named(id); n != "" {
			return n
		}
		return id
	}
	conflicts = conflicts[:min(len(conflicts), limit.RoutingProblems)]
	out := make([]Problem, 0, len(conflicts))
	for _, c := range conflicts {
		out = append(out, Problem{
			Kind: "conflict", Node: name(c.Refused.ID), Other: name(c.Kept.ID),
			Why: fmt.Sprintf("%s %s is that of %s: %s", c.Field, c.Value, name(c.Kept.ID), c.Why),
		})
	}
	return out
}

// named is the name of a member; empty if it has none, or another one has it.
func (m *Mesh) named(id string) string {
	if r := m.members[id]; r != nil {
		return r.Node
	}
	return ""
}
