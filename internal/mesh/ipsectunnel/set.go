// SPDX-License-Identifier: Apache-2.0

package ipsectunnel

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel/ipsec"
	"github.com/tombolo-io/tombolo/internal/mesh/keyexchange"
	"github.com/tombolo-io/tombolo/internal/mesh/path"
	"github.com/tombolo-io/tombolo/internal/mesh/tunnel"
)

// Apply makes the peers those of cfg. Tunnels of peers that stay with their pin stay; those of others are gone when it
// returns. A peer that states no pin has no tunnel.
func (e *Engine) Apply(cfg tunnel.Config) error {
	if cfg.Key.IsZero() {
		return fault.New(fault.CodeConfig, "this node's key").Whyf("there is none")
	}
	own, err := cfg.Key.Public()
	if err != nil {
		return err
	}
	want, err := tunnel.Checked(cfg, own)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	again := e.own != own
	e.own = own
	errs := []error{e.signLocked(cfg.Signer)}
	lines := map[member.Key]Line{}
	for k, p := range e.peers {
		if w, stays := want[k]; !stays || w.Pin != p.pin {
			lines[k] = p.line
			errs = append(errs, e.forgetLocked(p))
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(want), func(a, b member.Key) int { return bytes.Compare(a[:], b[:]) }) {
		p, w := e.peers[k], want[k]
		if p == nil {
			p = e.addLocked(k, w.Pin)
			p.line, p.since = lines[k], time.Now()
		}
		p.first = string(own[:]) < string(k[:])
		p.ranges = w.Ranges
	}
	errs = append(errs, e.pairLocked(cfg.Key, again), e.adoptLocked(), e.policiesLocked())
	e.alarm.Ring()
	return errors.Join(errs...)
}

// signLocked has this node be known by another certificate. Peers that have learned of it have forgotten the tunnels
// from before.
func (e *Engine) signLocked(s tunnel.Signer) error {
	if s.IsZero() || !e.signer.IsZero() && e.signer.Get().Equal(*s.Get()) {
		return nil
	}
	id, err := keyexchange.NewIdentity(*s.Get())
	if err != nil {
		return err
	}
	if e.parts.ChaCha {
		id = id.WithChaCha()
	}
	e.signer, e.id = s, id
	for _, p := range e.peers {
		p.wanted, p.failed = time.Now(), 0
	}
	return nil
}

// addLocked adds a peer. Its number is the same in the next run of this node, which finds states of it, and nobody else
// can make a key that leads to a number of his choice.
func (e *Engine) addLocked(k member.Key, pin member.Pin) *peer {
	p := &peer{peerFacts: peerFacts{key: k, pin: pin}, life: newLife()}
	h := hmac.New(sha256.New, e.parts.Numbers[:])
	h.Write(k[:])
	for p.id = binary.BigEndian.Uint32(h.Sum(nil)) | 1<<31; e.ids[p.id] != nil; p.id++ {
	}
	e.peers[k], e.ids[p.id] = p, p
	if pin != (member.Pin{}) {
		e.pins[pin]++
	}
	return p
}

// forgetLocked takes a peer away with all of its states: nobody sends by them or is heard by them any more.
func (e *Engine) forgetLocked(p *peer) error {
	p.gone = true
	delete(e.peers, p.key)
	if p.pair != nil {
		delete(e.hints, p.pair.Hint)
	}
	delete(e.ids, p.id)
	if e.pins[p.pin]--; e.pins[p.pin] <= 0 {
		delete(e.pins, p.pin)
	}
	if p.cancel != nil {
		p.cancel()
	}
	var errs []error
	for _, h := range p.held {
		errs = append(errs, e.removeLocked(h))
	}
	for _, s := range p.left {
		errs = append(errs, e.parts.Kernel.Remove(s.Name))
		delete(e.spis, s.SPI)
	}
	p.held, p.left = nil, nil
	return errors.Join(errs...)
}

// removeLocked takes both states of a tunnel away.
func (e *Engine) removeLocked(h held) error {
	delete(e.spis, h.In)
	err := e.parts.Kernel.Remove(ipsec.Name{To: h.line.Local, SPI: h.In})
	if h.Out != 0 {
		err = errors.Join(err, e.parts.Kernel.Remove(ipsec.Name{To: h.line.Remote.Addr(), SPI: h.Out}))
	}
	return err
}

// adoptLocked takes over the states of an earlier run, once the peers are known. Those of nobody go.
func (e *Engine) adoptLocked() error {
	if e.adopted || len(e.peers) == 0 {
		return nil
	}
	all, err := e.parts.Kernel.States()
	if err != nil {
		return err
	}
	e.adopted = true
	var errs []error
	for _, s := range all {
		p := e.ids[s.Peer]
		if p == nil {
			errs = append(errs, e.parts.Kernel.Remove(s.Name))
			continue
		}
		p.left = append(p.left, s)
		e.spis[s.SPI] = true
	}
	for _, p := range e.peers {
		slices.SortFunc(p.left, func(a, b ipsec.Seen) int { return b.Made.Compare(a.Made) })
		for _, s := range p.left {
			if s.Sends { // an address says nothing: this node may have another one now
				p.leftLine = Line{Local: s.From, Remote: netip.AddrPortFrom(s.To, e.parts.Port)}
				break
			}
		}
	}
	for _, p := range e.peers {
		p.sends = p.leftLine // until somebody says by which path
	}
	return errors.Join(errs...)
}

// policiesLocked has the kernel's policies be those of the peers.
func (e *Engine) policiesLocked() error {
	err := e.parts.Kernel.Apply(e.wantedLocked())
	e.stale = err != nil
	return err
}

// wantedLocked are the peers as their policies are to be.
func (e *Engine) wantedLocked() []ipsec.Peer {
	all := make([]ipsec.Peer, 0, len(e.peers))
	for _, p := range e.peers {
		all = append(all, ipsec.Peer{ID: p.id, Local: p.sends.Local, Remote: p.sends.Remote.Addr(), Ranges: p.ranges})
	}
	slices.SortFunc(all, func(a, b ipsec.Peer) int { return int(a.ID>>1) - int(b.ID>>1) })
	return all
}

// SetPath has packets to a peer go by a path from now on. They go by the tunnel that there is, until there is one on
// the path. It says false of a peer that is not configured.
func (e *Engine) SetPath(k member.Key, w path.Path, local netip.Addr) bool {
	var line Line
	if w.Direct() {
		line.Remote = netip.AddrPortFrom(w.Addr.Addr().Unmap(), w.Addr.Port())
		if line.Local = local.Unmap(); !line.Local.IsValid() {
			var err error
			if line.Local, err = e.parts.Local(line.Remote.Addr()); err != nil {
				e.log.Debug("no address to send from", "to", line.Remote, "error", err)
				line = Line{}
			}
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.peers[k]
	if p == nil {
		return false
	}
	if p.line.inUDP() != line {
		if line.sameEnds(p.line) { // by another port, of which protocol 50 has none
			line.Raw = p.line.Raw
		} else {
			p.trial = trial{receives: p.trial.receives, sends: p.trial.sends, sent: p.trial.sends}
		}
		p.line, p.since, p.failed = line, time.Now(), 0
		if p.cancel != nil { // it is about another path
			p.cancel()
		}
		e.alarm.Ring()
	}
	return true
}

// TryPSK does nothing: preshared keys are for WireGuard, which has no other protection from quantum computers.
func (e *Engine) TryPSK(member.Key, tunnel.Secret) error { return nil }

// Handshake has other keys be agreed, unless that was done within 5 s.
func (e *Engine) Handshake(k member.Key) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.peers[k]
	if p == nil {
		return fault.Newf(fault.CodeNotFound, "peer %s", k.Short())
	}
	p.wanted = time.Now()
	if p.line.Raw { // what is not answered may not pass
		p.trial = p.trial.rest(p.wanted, "the peer does not answer")
	}
	e.alarm.Ring()
	return nil
}

// Near reports whether a peer's path leads to an address: who calls from there is served before others.
func (e *Engine) Near(a netip.Addr) bool {
	a = a.Unmap()
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range e.peers {
		if p.line.Remote.Addr() == a {
			return true
		}
	}
	return false
}
