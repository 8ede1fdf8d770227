// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"crypto/ecdh"
	"slices"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/mesh/tunnel"
)

// Rotate replaces the keys of this node, and ends all sessions: each peer begins a new one as
// soon as it has learned the new keys, which are to be announced at once.
func (p *Peering) Rotate(next *ecdh.PrivateKey, signer tunnel.Signer) error {
	p.turn.Lock()
	defer p.turn.Unlock()
	what := "change of WireGuard's key"
	if next == nil || next.Curve() != ecdh.X25519() {
		return fault.New(fault.CodeConfig, what).Whyf("it is no key of X25519")
	}
	o := newOwn(next, signer)
	switch {
	case o.key == p.own.key:
		return fault.New(fault.CodeInternal, what).Whyf("the new key is the old one")
	case p.seen.Load().keys[o.key] != nil:
		return fault.New(fault.CodeSelf, what).Whyf("a peer has the new key")
	}
	was := p.own
	p.setOwn(o)
	if err := p.apply(); err != nil {
		p.setOwn(was)
		p.alarm.Ring()
		return err
	}
	p.log.Info("this node has a new key", "key", o.key, "old", was.key)
	p.alarm.Ring()
	return nil
}

// setOwn changes the key pair of this node, and with it all links. The caller holds turn.
func (p *Peering) setOwn(o *own) {
	p.mu.Lock()
	p.own = o
	all := make([]Peer, 0, len(p.peers))
	for _, x := range p.peers {
		all = append(all, x.Peer)
	}
	p.mu.Unlock()
	slices.SortFunc(all, func(a, b Peer) int { return compare(a.ID, b.ID) })
	drafts, refused := p.drafts(all)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.adopt(time.Now(), drafts)
	p.refused = append(p.refused, refused...)
}
