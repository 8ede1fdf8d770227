// SPDX-License-Identifier: Apache-2.0

package wireguardtest

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

// keep sends a keepalive, now and again.
func (k *Kernel) keep(p *peer) {
	k.give(p, nil)
	k.beat(p, p.every)
}

func (k *Kernel) beat(p *peer, in time.Duration) {
	if p.timer != nil {
		p.timer.Stop()
	}
	p.timer = time.AfterFunc(in, func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		switch idle := time.Since(p.sent); {
		case p.every == 0 || !k.lives(p):
		case idle >= p.every:
			k.keep(p)
		default:
			k.beat(p, p.every-idle)
		}
	})
}

func (k *Kernel) lives(p *peer) bool { return slices.Contains(p.of.peers, p) && p.of.up }

// give sends a packet by a session, or keeps it until there is one.
func (k *Kernel) give(p *peer, b []byte) {
	if !p.at.IsValid() && b != nil {
		return // the kernel says so to who sends, and counts nothing
	}
	age := time.Since(p.session)
	if p.session.IsZero() || age >= rejectAfter {
		p.staged = append(p.staged, b)
		k.initiate(p, false)
		return
	}
	if age >= rekeyAfter && p.first {
		k.initiate(p, false)
	}
	k.data(p, b)
}

// initiate begins a handshake, at most one in 5 s, and repeats it.
func (k *Kernel) initiate(p *peer, again bool) {
	if time.Since(p.began) < repeat {
		return
	}
	if !again {
		p.tried = 0
	}
	k.number++
	p.began, p.asking = time.Now(), k.number<<32|uint64(p.of.dev.PublicKey[0])<<8|uint64(p.of.dev.PublicKey[1])
	if p.at.IsValid() {
		p.tx += 148
	} // else it has gone nowhere, and counts as the one of these 5 s
	k.emit(p, 1, number(p.asking))
	began := p.began
	time.AfterFunc(repeat+time.Millisecond, func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if p.began.Equal(began) && p.asking != 0 && p.tried < tries && k.lives(p) {
			p.tried++
			k.initiate(p, true)
		}
	})
}

func number(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

func (k *Kernel) emit(p *peer, kind byte, rest []byte) {
	if k.Emit == nil || !p.of.up || !p.at.IsValid() {
		return
	}
	b := append([]byte{kind, 0, 0, 0}, p.of.dev.PublicKey[:]...)
	b = append(append(b, p.key[:]...), rest...)
	p.sent = time.Now()
	k.Emit(p.at, b)
}

func (k *Kernel) data(p *peer, b []byte) {
	p.tx += size(b)
	k.emit(p, 4, append(number(p.ids[0]), b...))
}

func size(b []byte) int64 { return 32 + int64(len(b)+15)/16*16 + min(int64(len(b)), 1)*64 }

// accept has a session be the one that is used.
func (p *peer) accept(n uint64, first bool) {
	p.ids, p.session, p.first = [2]uint64{n, p.ids[0]}, time.Now(), first
	p.shook = time.Now().Round(0)
}

// Say sends a numbered packet to an address in the mesh, from another one.
func (k *Kernel) Say(to, from netip.Addr, n uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, l := range k.links {
		for _, p := range l.peers {
			if slices.ContainsFunc(p.owns, func(r netip.Prefix) bool { return r.Contains(to) }) {
				k.give(p, append(number(n), from.AsSlice()...))
				return
			}
		}
	}
}

// Got reports whether a numbered packet arrived.
func (k *Kernel) Got(n uint64) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.got[n]
}

// Come takes a packet from the network.
func (k *Kernel) Come(from netip.AddrPort, b []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	sender, to := wgtypes.Key(b[4:36]), wgtypes.Key(b[36:68])
	for _, l := range k.links {
		for _, p := range l.peers {
			if l.up && l.dev.PublicKey == to && p.key == sender {
				k.handle(p, from, b[0], b[68:])
				return
			}
		}
	}
}

func (k *Kernel) handle(p *peer, from netip.AddrPort, kind byte, rest []byte) {
	n := binary.BigEndian.Uint64(rest)
	switch kind {
	case 1:
		p.rx, p.pending, p.at = p.rx+148, n, from
		p.tx += 92
		k.emit(p, 2, append(number(n), p.psk[:]...))
	case 2:
		if n != p.asking || !bytes.Equal(rest[8:40], p.psk[:]) {
			return
		}
		p.rx, p.asking, p.at = p.rx+92, 0, from
		p.accept(n, true)
		staged := p.staged
		p.staged = nil
		if len(staged) == 0 {
			staged = [][]byte{nil}
		}
		for _, b := range staged {
			k.data(p, b)
		}
	case 4:
		k.receive(p, from, n, rest[8:])
	}
}

func (k *Kernel) receive(p *peer, from netip.AddrPort, n uint64, rest []byte) {
	if n == p.pending && n != 0 {
		p.pending = 0
		p.accept(n, false)
	}
	if n != p.ids[0] && n != p.ids[1] || p.session.IsZero() {
		return
	}
	p.rx, p.at = p.rx+size(rest), from
	if p.first && time.Since(p.session) >= rekeyAfter {
		k.initiate(p, false)
	}
	if len(rest) == 0 {
		return
	}
	came := time.Now()
	time.AfterFunc(passive, func() { // nothing went back: the other end is to know that we live
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.lives(p) && p.sent.Before(came) {
			k.give(p, nil)
		}
	})
	source, _ := netip.AddrFromSlice(rest[8:])
	if !slices.ContainsFunc(p.owns, func(r netip.Prefix) bool { return r.Contains(source) }) {
		k.refuse++
		return
	}
	k.got[binary.BigEndian.Uint64(rest)] = true
}
