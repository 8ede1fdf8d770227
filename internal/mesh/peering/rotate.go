// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"crypto/ecdh"
	"slices"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/mesh/path"
)

// rotation is a change to a new key pair that is under way.
type rotation struct {
	began, until time.Time
}

// due is when a rotation may end by itself.
func (r rotation) due(now time.Time) time.Time {
	if at := r.began.Add(limit.PeeringSettle); at.After(now) {
		return sooner(at, r.until)
	}
	return sooner(now.Add(limit.PeeringLook), r.until)
}

// Rotation is what is known of a change to a new key pair.
type Rotation struct {
	Old, New member.Key
	Began    time.Time
	Until    time.Time // it ends then at the latest
	Left     []string  // names of peers that have a path to us, and no handshake with the new key
}

// Rotate begins to change to a new key pair: a second device beside the first. It ends by itself
// when every peer with a path has a handshake with the new key, and after most at the latest;
// Rotated is called then. The new key is to be announced as soon as this returns, with the
// old one as what it takes the place of.
func (p *Peering) Rotate(next *ecdh.PrivateKey, most time.Duration) error {
	p.turn.Lock()
	defer p.turn.Unlock()
	if next == nil || next.Curve() != ecdh.X25519() {
		return fault.New(fault.CodeConfig, "new key of WireGuard").Whyf("it is no key of X25519")
	}
	o := newOwn(next)
	if err := p.rotatable(o); err != nil {
		return err
	}
	now := time.Now()
	p.reown(func() {
		p.own = append(p.own, o)
		p.rotation = rotation{began: now, until: now.Add(most)}
	})
	p.mu.Lock()
	cfg := p.configs()[1]
	p.mu.Unlock()
	if err := p.parts.Engine.Begin(cfg); err != nil {
		p.reown(func() { p.own, p.rotation = p.own[:1], rotation{} })
		return err
	}
	p.log.Info("the new key of this node takes over", "key", o.key.Short(), "old", p.own[0].key.Short())
	p.alarm.Ring()
	return nil
}

func (p *Peering) rotatable(o *own) error {
	switch {
	case p.parts.Engine == nil:
		return fault.New(fault.CodeMeshAway, "change of WireGuard's key").Whyf("the mesh is not up yet").Hint("try again in a moment")
	case len(p.own) > 1:
		return fault.New(fault.CodeStateBusy, "change of WireGuard's key").Whyf("another one is under way").
			Hint("'tombolo mesh status' tells which peers it waits for")
	case o.key == p.own[0].key:
		return fault.New(fault.CodeInternal, "change of WireGuard's key").Whyf("the new key is the old one")
	case p.seen.Load().keys[o.key] != nil:
		return fault.New(fault.CodeSelf, "change of WireGuard's key").Whyf("a peer has the new key")
	}
	return nil
}

// reown changes the key pairs of this node, and with them all links. The caller holds turn.
func (p *Peering) reown(change func()) {
	p.mu.Lock()
	change()
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

// Rotating tells of the change of keys that is under way, if one is.
func (p *Peering) Rotating() (Rotation, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.own) < 2 {
		return Rotation{}, false
	}
	return Rotation{p.own[0].key, p.own[1].key, p.rotation.began, p.rotation.until, p.left(time.Now())}, true
}

// Key is the newest public key of this node.
func (p *Peering) Key() member.Key {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.own[len(p.own)-1].key
}

// left are the peers that a rotation waits for.
func (p *Peering) left(now time.Time) (names []string) {
	next := p.own[1]
	for _, x := range p.peers {
		s, _ := x.path.State(now)
		if s != path.Direct && s != path.Relayed {
			continue // it hears of the new key by discovery
		}
		if l := x.link(next, x.carrier(next)); l != nil && l.shook.IsZero() {
			names = append(names, x.Name)
		}
	}
	slices.Sort(names)
	return names
}

// rotated reports whether the old key pair is to end.
func (p *Peering) rotated(now time.Time) bool {
	switch {
	case len(p.own) < 2:
		return false
	case !now.Before(p.rotation.until):
		return true
	}
	return now.Sub(p.rotation.began) >= limit.PeeringSettle && len(p.left(now)) == 0
}

// End ends the old key pair now, whoever still uses it.
func (p *Peering) End() error {
	p.turn.Lock()
	defer p.turn.Unlock()
	if len(p.own) < 2 {
		return fault.New(fault.CodeNotFound, "change of WireGuard's key").Whyf("none is under way")
	}
	return p.finish()
}

// finish ends the old device. The caller holds turn.
func (p *Peering) finish() error {
	if err := p.parts.Engine.End(); err != nil {
		p.log.Warn("the old key of this node does not end", "error", err)
		return err
	}
	p.reown(func() { p.own, p.rotation = p.own[1:], rotation{} })
	p.mu.Lock()
	k := p.own[0].key
	p.mu.Unlock()
	p.log.Info("the old key of this node is gone", "key", k.Short())
	p.ending.Store(&k)
	p.news.Ring()
	return nil
}
