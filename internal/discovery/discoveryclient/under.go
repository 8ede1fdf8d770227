// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import (
	"slices"
	"time"

	"github.com/tombolo-io/tombolo/internal/discovery/seal"
)

// Keys are those of the secrets, in their order.
func (c Config) Keys() []seal.Keys { return slices.Clone(c.keys) }

// Under are the clusters, of this node's, in which a member has an entry of its own
// now: the secrets that it has. Of a member that only others speak of nothing is known.
func (c *Client) Under(id string) []seal.ClusterID {
	member, err := seal.ParseMemberID(id)
	if err != nil {
		return nil
	}
	has := c.native.under(time.Now(), member)
	var out []seal.ClusterID
	for _, k := range c.subs.keys() {
		if slices.Contains(has, k.Cluster()) {
			out = append(out, k.Cluster())
		}
	}
	return out
}

// under are the clusters of the newest entry of a member. Those of the one before count
// for a moment: a member says a new word under one secret after the other.
func (b *nativeBook) under(now time.Time, member seal.MemberID) []seal.ClusterID {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.members[member]
	if w == nil || w.entry.GetRemoved() {
		return nil
	}
	if now.Sub(w.began) < underGrace {
		return append(w.clusters(), w.prior...)
	}
	return w.clusters()
}
