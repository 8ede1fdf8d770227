// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"net/netip"
	"slices"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
)

// learn takes over who is there now, and gives after how long to do so again; 0: not at all.
func (m *Mesh) learn(r roster.Result, now time.Time) (again time.Duration) {
	m.learning.Lock()
	defer m.learning.Unlock()
	m.mu.Lock()
	was := m.ranges
	next, write := was.learn(r, now, m.set.ClosedFor)
	m.ranges = next
	m.mu.Unlock()
	if write {
		m.keepRanges(next)
	}
	closed := next.known.newlyClosed(was.known)
	for _, l := range closed[:min(len(closed), limit.RoutingTold)] {
		m.log.Warn("nothing is heard of a member, or of its key, any more: its ranges are closed, and packets for them are lost", "node", l.Node, "id", l.ID, "ranges", l.Ranges)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ranges.again(now)
}

// remember changes what is known of ranges, and keeps it.
func (m *Mesh) remember(change func(*knownRanges) error) error {
	m.learning.Lock()
	defer m.learning.Unlock()
	m.mu.Lock()
	next := m.ranges
	m.mu.Unlock()
	if err := change(&next.known); err != nil {
		return err
	}
	next.tried = time.Now()
	m.keepRanges(next)
	return nil
}

// keepRanges puts what is known on disk. What cannot be written counts all the same, until the
// end of this process. The caller holds learning.
func (m *Mesh) keepRanges(next rangeMemory) {
	if next.unwritten() {
		err := next.known.write(m.cfg.StateDir)
		if err != nil && next.failed == nil {
			m.log.Error("the known ranges are not kept: a restart sends those of nodes that are gone in clear", telemetry.AttrCode, fault.From(err).Code, telemetry.AttrReason, err)
		}
		next = next.wrote(err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ranges = next
}

// keepLast writes what the end of the process would lose.
func (m *Mesh) keepLast() { m.remember(func(*knownRanges) error { return nil }) }

// had remembers the ranges of this node with which it runs.
func (m *Mesh) had(own []netip.Prefix) {
	m.remember(func(k *knownRanges) error { k.Own = slices.Clone(own); return nil })
}

// Forget opens the ranges of a member that is gone: its packets go by this machine's own
// routes from then on.
func (m *Mesh) Forget(name string) (Forgotten, error) {
	out := Forgotten{Meta: meta(KindForgotten), Node: name}
	err := m.remember(func(k *knownRanges) (err error) {
		*k, out.Ranges, err = k.forget(name)
		return err
	})
	if err != nil {
		return Forgotten{}, err
	}
	m.log.Warn("closed ranges are opened", "node", name, "ranges", out.Ranges)
	ring(m.look)
	return out, nil
}
