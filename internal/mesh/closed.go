// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"fmt"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
	"github.com/tombolo-io/tombolo/internal/mesh/routing"
	"github.com/tombolo-io/tombolo/internal/mesh/topology"
)

// closedLocked are whose ranges are closed. Who calls it holds mu.
func (m *Mesh) closedLocked() (out []Closed) {
	if m.set.Options.Bypass {
		return nil
	}
	for _, l := range m.ranges.known.Members {
		if l.closed() {
			out = append(out, Closed{Node: l.Node, ID: l.ID, Ranges: l.Ranges, Since: l.Gone, Until: l.Gone.Add(m.set.ClosedFor)})
		}
	}
	return out
}

// closedRanges is how many ranges that are.
func (m *Mesh) closedRanges() (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.closedLocked() {
		n += len(c.Ranges)
	}
	return n
}

// closedInto tells whose ranges are closed, and what is left out of what is known.
func (m *Mesh) closedInto(s *Status, now time.Time) {
	s.Closed = m.closedLocked()
	if m.ranges.left > 0 {
		s.Warnings = append(s.Warnings, fmt.Sprintf("there are more members with ranges than are kept for when nothing is heard of them (%d, with %d ranges): those of %d that are known for the shortest time would be sent in clear",
			limit.MeshLearned, limit.MeshLearnedRanges, m.ranges.left))
	}
	if g := m.overlay.Gave; g != nil && now.Sub(g.At).Abs() < m.finder.Lease() {
		s.Warnings = append(s.Warnings, g.fault().Error())
	}
}

// against is what a member of these facts is compared with: those that are there now.
func (m *Mesh) against(self roster.Facts) topology.Input {
	result, _ := m.finder.Result()
	var there []roster.Member
	for _, r := range result.Members {
		if !r.Stale {
			there = append(there, r)
		}
	}
	return topology.Input{Self: routing.MemberOf(roster.Member{Facts: self}), Members: m.believed(there)}
}
