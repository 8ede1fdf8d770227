// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"errors"
	"fmt"
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
	key member.Key
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
	of   *peer
	link *link
}

// Set makes the peers those that are given. What is known of those that stay is kept. A peer
// that cannot be one, for its key, is left out; the error says so, and the others are in force.
func (p *Peering) Set(all []Peer) error {
	p.turn.Lock()
	defer p.turn.Unlock()
	all = slices.Clone(all)
	p.elsewhere = slices.Clone(all)
	p.elsewhere = slices.DeleteFunc(p.elsewhere, func(f Peer) bool { return !f.Elsewhere })
	all = slices.DeleteFunc(all, func(f Peer) bool { return f.Elsewhere })
	slices.SortStableFunc(all, func(a, b Peer) int { return strings.Compare(a.ID, b.ID) })
	drafts, refused := p.drafts(all)

	p.mu.Lock()
	p.adopt(time.Now(), drafts)
	p.refused = refused
	p.mu.Unlock()
	errs := []error{p.apply()}
	var apart []string
	for _, r := range refused {
		if r.Apart {
			apart = append(apart, r.Name)
		} else {
			errs = append(errs, r.Problem)
		}
	}
	if len(apart) > 0 { // half of all nodes, where IPsec alone may carry packets
		errs = append(errs, farApart(p.parts.Encrypts, apart))
	}
	p.alarm.Ring()
	return errors.Join(errs...)
}

// drafts judges peers and derives their keys. The caller holds turn: what there is of
// peers and links stays meanwhile.
func (p *Peering) drafts(all []Peer) (out []draft, refused []Report) {
	inside := newRanges(slices.Concat(all, p.elsewhere))
	taken := map[member.Key]bool{}
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
		err := p.judge(f, taken)
		if err == nil {
			d.link, err = newLink(f, p.own, d.of)
		}
		if err != nil {
			refused = append(refused, Report{ID: f.ID, Name: f.Name, Key: f.Key, Problem: err, Apart: p.apart(f),
				Report: path.Report{State: path.Down, Why: err.Error()}})
			continue
		}
		taken[f.Key] = true
		out = append(out, d)
	}
	return out, refused
}

// judge says why a peer cannot be one.
func (p *Peering) judge(f Peer, taken map[member.Key]bool) error {
	const copied = "one of the two was copied: remove its state directory, so that it makes a key of its own"
	switch {
	case p.apart(f):
		return fault.Newf(fault.CodeEngine, "peer %s", f.Name).
			Whyf("it runs engine %s, this node %s alone", f.Engine, p.parts.Encrypts).
			Hint("%s", aloneHint)
	case p.parts.Encrypts == member.IPsec && f.Pin.IsZero():
		return fault.Newf(fault.CodeEntryInvalid, "peer %s", f.Name).
			Whyf("no source states the pin of its certificate").
			Hint("update that node; a Member of Kubernetes has it once the kind Member is that of this release")
	case f.Key == member.Key{}:
		return fault.Newf(fault.CodeEntryInvalid, "peer %s", f.Name).Whyf("it has no key")
	case f.Key == p.own.key:
		return fault.Newf(fault.CodeSelf, "peer %s", f.Name).Whyf("it has this node's key").Hint(copied)
	case taken[f.Key]:
		return fault.Newf(fault.CodeSelf, "peer %s", f.Name).Whyf("another peer has its key").Hint(copied)
	case f.Secrets == nil:
		return fault.Newf(fault.CodeSecret, "peer %s", f.Name).Whyf("it and this node have no secret in common")
	}
	return nil
}

// apart reports whether a peer has another engine than this node.
func (p *Peering) apart(f Peer) bool { return !f.Engine.Same(p.parts.Encrypts) }

// farApart says in one error which peers have another engine.
func farApart(own member.Engine, names []string) error {
	more := ""
	if n := len(names) - limit.MeshNames; n > 0 {
		names, more = names[:limit.MeshNames], fmt.Sprintf(" and %d more", n)
	}
	return fault.New(fault.CodeEngine, "some peers have no tunnel").
		Whyf("this node runs %s alone, and %s%s another engine", own,
			strings.Join(names, ", "), more).
		Hint("%s", aloneHint)
}

// aloneHint is what to do where one engine alone may carry packets.
const aloneHint = "set mesh.engine of the other node to ipsec, or take mesh.ipsec.only out of this node's configuration"

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
	return &peer{path: path.New(number), locals: map[path.Path]*local{}}
}

// adopt puts peers in force. The caller holds both locks.
func (p *Peering) adopt(now time.Time, drafts []draft) {
	next := make(map[string]*peer, len(drafts))
	all := make([]Peer, 0, len(drafts))
	for _, d := range drafts {
		x := d.of
		fresh := p.peers[d.ID] == nil
		if x.certifiedAs != "" && (x.Key != d.Key || x.Name != d.Name) { // others know it as it was
			p.health.Store(true)
			p.news.Ring()
		}
		if x.Key != d.Key {
			x.told = false
			if !x.Proven || !d.Proven {
				x.certifiedAs = ""
			}
		} else {
			d.Proven = d.Proven || x.Proven // the member may have announced the next key already
		}
		x.Peer, x.link = d.Peer, d.link
		next[d.ID] = x
		all = append(all, d.Peer)
		x.path.Learn(now, d.Facts)
		if x.link.psk.Since.IsZero() {
			x.link.turnPSK(now, time.Time{})
		}
		if fresh {
			p.log.Debug("peer", telemetry.AttrNode, x.Name, "key", x.Key)
			if !x.Facts.Probes {
				p.askBy(now) // before another path is tried than the one that an ended run has left
			}
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
		p.askBy(now.Add(peeringStats))
	}
}

// look makes what packets are looked up in.
func (p *Peering) look(all []Peer) {
	v := &view{
		hints: map[disco.Hint][]*link{}, names: map[member.Key]string{},
		keys: map[member.Key]*peer{}, by: map[string]named{}, inside: newRanges(slices.Concat(all, p.elsewhere)),
	}
	for _, f := range all {
		x := p.peers[f.ID]
		if _, taken := v.by[x.Name]; !taken {
			v.by[x.Name] = named{x, x.Key}
		}
		v.names[x.Key], v.keys[x.Key] = x.Name, x
		h := x.link.pairs[0].Hint
		v.hints[h] = append(v.hints[h], x.link)
	}
	p.seen.Store(v)
}

// apply has the engine be as it is wanted. The caller holds turn. What fails is tried again
// by and by.
func (p *Peering) apply() error {
	p.mu.Lock()
	cfg := p.config()
	p.mu.Unlock()
	err := p.parts.Engine.Apply(cfg)
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

// config is the desired state of the engine.
func (p *Peering) config() tunnel.Config {
	cfg := tunnel.Config{Key: p.own.secret(), Signer: p.own.signer, Peers: make([]tunnel.Peer, 0, len(p.peers))}
	for _, x := range p.peers {
		t := tunnel.Peer{
			Key: x.Key, Pin: x.Pin, PSK: x.link.inForce(), Probes: x.Facts.Probes, First: first(x.Facts.Candidates),
			Ranges: slices.Concat(x.Ranges, x.Sources),
		}
		if !x.Facts.Probes && !x.Facts.Lazy {
			t.Keepalive = peeringKeepalive
		}
		cfg.Peers = append(cfg.Peers, t)
	}
	return cfg
}
