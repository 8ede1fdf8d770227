// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import (
	"slices"
	"time"

	"github.com/tombolo-io/tombolo/internal/discovery/seal"
)

// expired takes the ids of members whose leases have run out at the service. It logs the first of them: nothing else
// tells why such a member is gone.
func (a *attending) expired(ids [][]byte) {
	c, n, first := a.c, 0, ""
	by := heardFrom{name: c.service.Name, session: a.number}
	for _, raw := range ids {
		if len(raw) != len(seal.MemberID{}) || !c.native.expired(time.Now(), by, c.keys.Cluster(), seal.MemberID(raw)) {
			continue
		}
		if n++; n == 1 {
			first = seal.MemberID(raw).String()
		}
	}
	if n > 0 {
		c.log.Info("leases of members have run out at a discovery service", "service", c.service.Name, "members", n,
			"first", first)
		c.changed()
	}
}

// expired takes a service's report that a lease has run out. It counts for entries that came with
// a list, as the rest of their leases is not known here; all other leases run here. It counts for what
// the same session has listed: one that is being left may be late, and the next one would not tell a member
// again that is back. A member that had no time to come back to the service becomes stale, as at the end of
// a lease here.
func (b *nativeBook) expired(now time.Time, by heardFrom, cluster seal.ClusterID, id seal.MemberID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.members[id]
	if w == nil || w.entry.GetRemoved() || w.cluster != cluster { // what ends for one secret may live for another
		return false
	}
	i := slices.IndexFunc(w.sources,
		func(h heardFrom) bool { return h.name == by.name && h.listed && h.session == by.session })
	if i < 0 {
		return false
	}
	if p := b.here[hereOf{cluster, by.name}]; p == nil || p.present(now) {
		w.sources = slices.Delete(w.sources, i, i+1)
		return true
	}
	if len(w.sources) > 1 || !now.Before(w.until) {
		return false // others say it
	}
	w.until, w.began = now, time.Time{}
	return true
}
