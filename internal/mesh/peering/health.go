// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"net/netip"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/mesh/path"
)

// Health is what routing looks at of a peer.
type Health struct {
	ID   string
	Name string // as it was set, and the key
	Key  member.Key
	Down bool
	Idle bool // nobody has asked it for a while
	// Doubt says that the path in use has missed an answer. Changed does not report that by itself, but of peers that
	// are asked together.
	Doubt bool
	// Alone says that the peer reaches no other node of its cluster, as it says of itself.
	Alone bool
	MTU   int          // as Report has it
	At    []netip.Addr // where the peer has answered without a relay
	// Certified says that a hub has vouched for the peer's name: a member may call itself as it likes,
	// and only a certificate says who it is.
	Certified bool
}

// Healths are those of all peers, in no order. They are asked for with each change of the mesh,
// so that WireGuard is not asked for them, as it is for Reports: Changed reports later what differs.
func (p *Peering) Healths() []Health {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	out := make([]Health, 0, len(p.peers)+len(p.refused))
	for _, r := range p.refused {
		out = append(out, Health{ID: r.ID, Name: r.Name, Key: r.Key, Down: !r.Up(), MTU: r.MTU})
	}
	for _, x := range p.peers {
		s, _ := x.path.State(now)
		out = append(out, Health{ID: x.ID, Name: x.Name, Key: x.Key, Down: s == path.Down, Idle: s == path.Idle,
			Doubt: x.path.InDoubt(), Alone: x.alone, MTU: tunnelMTU(p.parts.Encrypts, x.via, x.size), At: x.path.Places(now),
			Certified: x.certified()})
	}
	return out
}
