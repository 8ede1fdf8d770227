// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/mesh/disco"
	"github.com/tombolo-io/tombolo/internal/mesh/path"
	"github.com/tombolo-io/tombolo/internal/mesh/tunnel"
)

// view is what packets are looked up in. It stays as it is made.
type view struct {
	hints  map[disco.Hint][]*link
	names  map[member.Key]string
	keys   map[member.Key]*peer
	by     map[string]named
	inside ranges
}

// named is the peer that a relay means.
type named struct {
	*peer
	key member.Key // its newest
}

// ranges are looked up by address.
type ranges struct {
	bits map[int]bool // lengths, those of IPv6 from 256
	all  map[netip.Prefix]bool
}

func newRanges(peers []Peer) ranges {
	r := ranges{bits: map[int]bool{}, all: map[netip.Prefix]bool{}}
	for _, p := range peers {
		for _, n := range p.Ranges {
			r.bits[lengthOf(n.Addr(), n.Bits())] = true
			r.all[n.Masked()] = true
		}
	}
	return r
}

func lengthOf(a netip.Addr, bits int) int {
	if a.Is6() {
		bits += 256
	}
	return bits
}

func (r ranges) contain(a netip.Addr) bool {
	for bits := range r.bits {
		if a.Is6() != (bits >= 256) {
			continue
		}
		if n, err := a.WithZone("").Prefix(bits % 256); err == nil && r.all[n] {
			return true
		}
	}
	return false
}

// draft is a peer that is to be in force.
type draft struct {
	Peer
	of    *peer
	links []*link
}

// Set makes the peers those that are given. What is known of those that stay is kept. A peer
// that cannot be one, for its key, is left out; the error says so, and the others are in force.
func (p *Peering) Set(all []Peer) error {
	p.turn.Lock()
	defer p.turn.Unlock()
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b Peer) int { return strings.Compare(a.ID, b.ID) })
	drafts, refused := p.drafts(all)

	p.mu.Lock()
	p.adopt(time.Now(), drafts)
	p.refused = refused
	p.mu.Unlock()
	errs := []error{p.apply()}
	for _, r := range refused {
		errs = append(errs, r.Problem)
	}
	p.alarm.Ring()
	return errors.Join(errs...)
}

// drafts judges peers and derives their keys. The caller holds turn: what there is of
// peers and links stays meanwhile.
func (p *Peering) drafts(all []Peer) (out []draft, refused []Report) {
	inside := newRanges(all)
	taken := map[member.Key]bool{}
	for _, o := range p.own {
		taken[o.key] = true
	}
	ids := map[string]bool{}
	for _, f := range all {
		if ids[f.ID] {
			continue
		}
		ids[f.ID] = true
		f.Facts.Candidates = outside(f.Facts.Candidates, inside)
		d := draft{Peer: f, of: p.peers[f.ID]}
		if d.of == nil {
			d.of = newPeer()
		}
		err := p.claim(&d, taken)
		if err != nil {
			refused = append(refused, Report{ID: f.ID, Name: f.Name, Keys: f.Keys, Problem: err, Report: path.Report{State: path.Down, Why: err.Error()}})
			continue
		}
		out = append(out, d)
	}
	for i := range out { // nobody's previous key is another one's key
		d := &out[i]
		d.Keys = slices.DeleteFunc(slices.Clone(d.Keys[:min(len(d.Keys), 2)]), func(k member.Key) bool {
			if k == d.Keys[0] {
				return false
			}
			was := taken[k]
			taken[k] = true
			return was
		})
		var kept []*link
		for _, o := range p.own {
			for _, k := range d.Keys {
				l := findLink(d.links, o, k)
				if l == nil {
					var err error
					if l, err = newLink(d.of, d.Peer, o, k, d.of.link(o, k)); err != nil {
						continue // the previous key is none, or has no secret: it is done without
					}
				}
				kept = append(kept, l)
			}
		}
		d.links = kept
		d.Keys = slices.DeleteFunc(d.Keys, func(k member.Key) bool {
			return !slices.ContainsFunc(kept, func(l *link) bool { return l.key == k })
		})
	}
	return out, refused
}

// claim judges a peer's newest key and derives what is under it.
func (p *Peering) claim(d *draft, taken map[member.Key]bool) error {
	switch {
	case len(d.Keys) == 0 || d.Keys[0] == member.Key{}:
		return fault.Newf(fault.CodeEntryInvalid, "peer %s", d.Name).Whyf("it has no key")
	case slices.ContainsFunc(p.own, func(o *own) bool { return o.key == d.Keys[0] }):
		return fault.Newf(fault.CodeSelf, "peer %s", d.Name).Whyf("it has this node's key").
			Hint("one of the two was copied: remove its state directory, so that it makes a key of its own")
	case taken[d.Keys[0]]:
		return fault.Newf(fault.CodeSelf, "peer %s", d.Name).Whyf("another peer has its key").
			Hint("one of the two was copied: remove its state directory, so that it makes a key of its own")
	case d.Secrets == nil:
		return fault.Newf(fault.CodeSecret, "peer %s", d.Name).Whyf("it and this node have no secret in common")
	}
	for _, o := range p.own {
		l, err := newLink(d.of, d.Peer, o, d.Keys[0], d.of.link(o, d.Keys[0]))
		if err != nil {
			return err
		}
		d.links = append(d.links, l)
	}
	taken[d.Keys[0]] = true
	return nil
}

func findLink(all []*link, o *own, k member.Key) *link {
	for _, l := range all {
		if l.own.key == o.key && l.key == k {
			return l
		}
	}
	return nil
}

// outside leaves out what lies within the mesh: a path must not travel on itself.
func outside(in []path.Candidate, mesh ranges) (out []path.Candidate) {
	for _, c := range in {
		c.Addr = unmapped(c.Addr)
		if !mesh.contain(c.Addr.Addr()) {
			out = append(out, c)
		}
	}
	return out
}

func unmapped(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

func newPeer() *peer {
	return &peer{path: path.New(number), locals: map[path.Way]*local{}, carries: map[member.Key]member.Key{}}
}

// adopt puts peers in force. The caller holds both locks.
func (p *Peering) adopt(now time.Time, drafts []draft) {
	next := make(map[string]*peer, len(drafts))
	all := make([]Peer, 0, len(drafts))
	for _, d := range drafts {
		x := d.of
		fresh := p.peers[d.ID] == nil
		known := x.Keys
		x.Peer, x.links = d.Peer, d.links
		x.inherit()
		next[d.ID] = x
		all = append(all, d.Peer)
		x.path.Learn(now, d.Facts)
		for _, l := range x.links {
			if l.psk.Since.IsZero() {
				l.turnPSK(now, time.Time{})
			}
		}
		if fresh {
			p.log.Debug("peer", telemetry.AttrNode, x.Name, "key", x.Keys[0])
			if !x.Facts.Probes {
				p.askBy(now) // before another way is tried than the one that an ended run has left
			}
		}
		if slices.ContainsFunc(x.Keys, func(k member.Key) bool { return !slices.Contains(known, k) }) {
			x.told = false
		}
		p.touch(x)
	}
	for id, x := range p.peers {
		if next[id] == nil {
			x.gone = true
			p.due.plan(x, time.Time{})
		}
	}
	p.peers = next
	p.look(all)
	if p.askAt.IsZero() {
		p.askBy(now.Add(limit.PeeringStats))
	}
}

// look makes what packets are looked up in.
func (p *Peering) look(all []Peer) {
	v := &view{
		hints: map[disco.Hint][]*link{}, names: map[member.Key]string{},
		keys: map[member.Key]*peer{}, by: map[string]named{}, inside: newRanges(all),
	}
	for _, f := range all {
		x := p.peers[f.ID]
		if _, taken := v.by[x.Name]; !taken {
			v.by[x.Name] = named{x, x.Keys[0]}
		}
		for _, k := range x.Keys {
			v.names[k], v.keys[k] = x.Name, x
		}
		for _, l := range x.links {
			h := l.pairs[0].Hint
			v.hints[h] = append(v.hints[h], l)
		}
	}
	p.seen.Store(v)
}

// apply has the engine be as it is wanted. The caller holds turn. What fails is tried again
// by and by.
func (p *Peering) apply() error {
	p.mu.Lock()
	configs := p.configs()
	p.mu.Unlock()
	err := p.parts.Engine.Apply(configs[0])
	if len(configs) > 1 {
		err = errors.Join(err, p.parts.Engine.ApplyNext(configs[1]))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stale = err != nil
	return err
}

// first is where a peer is looked for first.
func first(all []path.Candidate) (at netip.AddrPort) {
	if len(all) > 0 {
		at = slices.MinFunc(all, func(a, b path.Candidate) int { return int(a.Kind) - int(b.Kind) }).Addr
	}
	return at
}

// configs are those of our key pairs, the oldest first.
func (p *Peering) configs() (out []tunnel.Config) {
	for _, o := range p.own {
		cfg := tunnel.Config{Key: o.secret(), Peers: make([]tunnel.Peer, 0, len(p.peers))}
		for _, x := range p.peers {
			x.carries[o.key] = x.carrier(o)
			for _, l := range x.links {
				if l.own != o {
					continue
				}
				t := tunnel.Peer{Key: l.key, PSK: l.inForce(), Probes: x.Facts.Probes, First: first(x.Facts.Candidates)}
				if !x.Facts.Probes && !x.Facts.Lazy {
					t.Keepalive = limit.PeeringKeepalive
				}
				if l.key == x.carries[o.key] {
					t.Ranges = slices.Concat(x.Ranges, x.Sources)
				}
				cfg.Peers = append(cfg.Peers, t)
			}
		}
		out = append(out, cfg)
	}
	return out
}
