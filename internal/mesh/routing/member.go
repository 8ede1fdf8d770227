// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"slices"

	"github.com/tombolo-io/tombolo/internal/discovery/roster"
	"github.com/tombolo-io/tombolo/internal/mesh/topology"
)

// MemberOf is a member of the roster as topology sees it. A stale one is a member like
// others, for its packets must not go in clear; one without a key takes no part, but its
// addresses are to be reached without the mesh.
func MemberOf(m roster.Member) topology.Member {
	out := topology.Member{
		ID: m.ID, Node: m.Node, Key: m.Key, Overlay6: m.Overlay6, Overlay4: m.Overlay4,
		Addresses: slices.Clone(m.Addresses), Ranges: slices.Clone(m.Ranges), Excluded: slices.Clone(m.Excluded),
	}
	for _, e := range m.Endpoints {
		// What others say of it must not keep its ranges, or anybody's, from being routed.
		if a := e.Addr.Addr(); e.Kind != roster.KindObserved && !slices.Contains(out.Endpoints, a) {
			out.Endpoints = append(out.Endpoints, a)
		}
	}
	return out
}

// MembersOf are those of a roster. An id is unique within its tier; of two with one id the
// one of the lower tier gets another.
func MembersOf(members []roster.Member) []topology.Member {
	out := make([]topology.Member, 0, len(members))
	highest := map[string]roster.Tier{}
	for _, m := range members {
		highest[m.ID] = max(highest[m.ID], m.Tier)
	}
	for _, m := range members {
		t := MemberOf(m)
		if m.Tier != highest[m.ID] {
			t.ID += " (" + m.Tier.String() + ")"
		}
		out = append(out, t)
	}
	return out
}
