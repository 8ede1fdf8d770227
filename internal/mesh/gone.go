// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
	"github.com/tombolo-io/tombolo/internal/mesh/topology"
)

// tellGone logs which peers have no place in a new plan, and why. Here all of them pass, whatever has taken them away.
func (s *state) tellGone(next topology.Peers, do *effects) {
	stays := make(map[string]bool, len(next))
	for _, p := range next {
		stays[p.ID] = true
	}
	gone := slices.DeleteFunc(slices.Clone(s.peers), func(p topology.Peer) bool { return stays[p.ID] })
	for i, p := range gone {
		if i == limit.RoutingTold {
			do.logs(slog.LevelInfo, "more peers are gone", "peers", len(gone)-i)
			return
		}
		do.logs(slog.LevelInfo, "a peer is gone", telemetry.AttrNode, p.Node, "id", p.ID,
			telemetry.AttrReason, s.whyGone(p))
	}
}

// whyGone is what the last look shows of a peer that the plan does not have any more.
func (s *state) whyGone(p topology.Peer) string {
	r := s.world.result
	if m := s.members[p.ID]; m != nil {
		return s.whyUnplanned(m)
	}
	if slices.Contains(r.Removed, p.ID) {
		return "it has said farewell"
	}
	for _, m := range r.Members {
		if slices.ContainsFunc(m.Entries, func(e roster.Entry) bool { return e.Succeeds == p.ID }) {
			return "member " + m.ID + " has taken its place"
		}
	}
	if why := refusedOf(r.Conflicts, p.ID); why != "" {
		return why
	}
	return fmt.Sprintf("no source states it any more: its lease is over, or those that stated it are not asked; "+
		"services that report members now: %d", len(s.world.attending))
}

// whyUnplanned is why a member that is there is no peer.
func (s *state) whyUnplanned(m *roster.Member) string {
	if m.Key.IsZero() {
		return cmp.Or(refusedOf(s.world.result.Conflicts, m.ID), "it states no key any more")
	}
	if m.Key == s.key.public {
		return "it states this node's key"
	}
	for _, other := range s.world.result.Members {
		if other.Key == m.Key && other.ID != m.ID {
			return "member " + other.ID + " has the same key, and counts"
		}
	}
	return "no linked cluster needs a tunnel to it"
}

// refusedOf is what another member has of what one claims; empty: nothing.
func refusedOf(conflicts []roster.Conflict, id string) string {
	i := slices.IndexFunc(conflicts, func(c roster.Conflict) bool { return c.Refused.ID == id && c.Kept.ID != id })
	if i < 0 {
		return ""
	}
	return fmt.Sprintf("its %s is that of member %s: %s", conflicts[i].Field, conflicts[i].Kept.ID, conflicts[i].Why)
}
