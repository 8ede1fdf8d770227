// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"github.com/tombolo-io/tombolo/internal/base/member"
)

// vouch notes that a hub has led a valid probe of a key, from the node whose certificate has
// a name: who holds the key is that node. The caller holds mu.
func (p *Peering) vouch(x *peer, k member.Key, name string) {
	if name == "" || x.vouched[k] == name {
		return
	}
	if x.vouched == nil {
		x.vouched = map[member.Key]string{}
	}
	x.vouched[k] = name
	x.inherit()
	p.health.Store(true)
	p.news.Ring()
}

// inherit has the new key of a peer bear the name of the old one: new connections would be
// refused otherwise until a hub has led a probe of the new one, which takes a while for who
// is reached directly. The caller holds mu.
func (x *peer) inherit() {
	if name := x.Name; x.Succeeds && len(x.Keys) > 1 && name != "" && x.vouched[x.Keys[1]] == name {
		x.vouched[x.Keys[0]] = name
	}
}

// Certified reports whether a hub has vouched for a peer's name: a member may call itself as
// it likes, and only a certificate says who it is.
func (p *Peering) Certified(id string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	x := p.peers[id]
	return x != nil && x.vouched[x.Keys[0]] == x.Name
}
