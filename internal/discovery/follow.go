// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"net/netip"
	"time"

	"github.com/tombolo-io/tombolo/internal/discovery/roster"
)

// A store whose truth is elsewhere asks the board before it writes there (Admit),
// and puts onto it whatever has become true there (Follow), for that is past refusing.

// Admit says whether the board would take a member as it is to become, from an
// address. Of many at once, each sees the same room.
func (b *Board) Admit(p Place, from netip.Addr, now roster.Lease) error {
	c, bounds := b.find(p.Cluster, false), *b.bounds.Load()
	if c == nil {
		c = newCluster(p.Cluster)
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	was := c.members[p.Member]
	if err := c.fits(was.Lease, now, bounds); err != nil {
		return err
	}
	ask := c.claim(step{p.Member, party(from), was, now})
	if n := b.inUse.Load(); ask.clusters > 0 && bounds.Clusters > 0 && n >= int64(bounds.Clusters) {
		return crowded(n)
	}
	if err := enough(b.bytes.Load()+b.shares.memory.Load()+ask.now-ask.was, ask, bounds); err != nil {
		return err
	}
	return b.shares.check(ask, bounds)
}

// Follow puts a member as it is, without bounds, and reports only changed contents to watchers. If
// another service took the change, its address is not known: then it counts with no party, unless
// only its lease is longer.
func (b *Board) Follow(p Place, from netip.Addr, now roster.Lease) {
	c := b.lock(p.Cluster)
	was := c.members[p.Member]
	change := was.Become(now)
	if !from.IsValid() && change == roster.Renewed {
		from = was.owner()
	}
	c.become(b, step{p.Member, party(from), was, now}, Bounds{}) // which refuses nothing
	if change == roster.Changed || change == roster.Gone {
		c.note(p.Member)
		c.wake()
	}
	idle := c.idle()
	c.mu.Unlock()
	if idle {
		b.forget(p.Cluster)
	}
}

// ExpireEndpoints is Expire for endpoints alone: whether a member is there is
// decided elsewhere.
func (b *Board) ExpireEndpoints(now time.Time) { b.sweep(now, roster.Lease.ExpireEndpoints) }
