// SPDX-License-Identifier: Apache-2.0

package discoveryclient

// Unopened counts, for each service of the older protocol, the entries of this node's cluster that
// none of the secrets opens: of a cluster with another secret, or junk from anyone who knows the
// cluster's id. Services without such entries are left out.
func (c *Client) Unopened() map[string]int {
	out := map[string]int{}
	for _, sub := range c.subs.all() {
		if sub.older == nil {
			continue
		}
		if n := sub.older.unopened(); n > 0 {
			out[sub.service.Name] = max(n, out[sub.service.Name])
		}
	}
	return out
}

// unopened counts while the service reports members.
func (b *olderBook) unopened() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.live {
		return 0
	}
	return len(b.sealed)
}
