// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"time"

	"github.com/tombolo-io/tombolo/internal/roster"
)

// A store whose truth is elsewhere asks the board before it writes there (Admit),
// and puts onto it whatever has become true there (Follow), for that is past refusing.

// Admit says whether the board would take a member as it is to become. Of many at
// once each is told of the same room.
func (b *Board) Admit(p Place, now roster.Lease) error {
	b.mu.RLock()
	c, n := b.clusters[p.Cluster], len(b.clusters)
	b.mu.RUnlock()
	if c == nil {
		if err := crowded(n, b.bounds.Load().Clusters); err != nil {
			return err
		}
		c = newCluster()
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	was := c.members[p.Member]
	if err := b.fits(c, was, now); err != nil {
		return err
	}
	grown, all := weight(p.Member, now)-weight(p.Member, was), b.bytes.Load()
	if b.bounds.Load().Bytes > 0 && grown > 0 && all+grown > b.bounds.Load().Bytes {
		return full("bytes of members", all, "bytes")
	}
	return nil
}

// Follow puts a member as it is, without bounds, and tells watchers only of what
// is another content.
func (b *Board) Follow(p Place, now roster.Lease) {
	for {
		c, _ := b.make(p.Cluster, 0)
		c.mu.Lock()
		if c.gone {
			c.mu.Unlock()
			continue
		}
		was := c.members[p.Member]
		b.bytes.Add(weight(p.Member, now) - weight(p.Member, was))
		c.put(b, p.Member, was, now)
		if change := was.Become(now); change == roster.Changed || change == roster.Gone {
			c.note(p.Member)
			c.wake()
		}
		idle := c.idle()
		c.mu.Unlock()
		if idle {
			b.forget(p.Cluster)
		}
		return
	}
}

// ExpireEndpoints is Expire for endpoints alone: whether a member is there is
// somebody else's word.
func (b *Board) ExpireEndpoints(now time.Time) { b.sweep(now, roster.Lease.ExpireEndpoints) }
