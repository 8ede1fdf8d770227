// SPDX-License-Identifier: Apache-2.0

package peering_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/mesh/path"
	"github.com/tombolo-io/tombolo/internal/mesh/tunnel"
)

// engine is a twin of tunnel.Engine without cryptography: handshakes that need the same
// preshared key at both ends, sessions of 180 s, and another key of its own, which ends them.
type engine struct {
	n       *node
	mu      sync.Mutex
	now     *device
	paths   map[member.Key]path.Path
	locals  map[member.Key]netip.Addr
	watched map[member.Key]bool
	act     map[member.Key]*tunnel.Activity
	got     map[uint64]bool
	roamed  map[member.Key]netip.AddrPort // of peers without probes
	refused int
	calls   map[string]int
	fail    error // of the next Apply
	deaf    bool  // to handshakes of others, as to those of a clock that was put back
}

type device struct {
	key   member.Key
	peers map[member.Key]*wgPeer
}

type wgPeer struct {
	tunnel.Peer
	session   time.Time // begun, as far as this end knows
	handshake time.Time // completed
	ids       [2]uint64 // of the session and the one before
	pending   uint64    // of one that was answered, and not proven yet
	asking    uint64    // of our own that waits
	began     time.Time // the newest of our own that waits
	tries     int
	staged    []byte
	sent      uint64
}

func newEngine(n *node) *engine {
	return &engine{
		n: n, now: &device{peers: map[member.Key]*wgPeer{}}, paths: map[member.Key]path.Path{}, locals: map[member.Key]netip.Addr{}, watched: map[member.Key]bool{},
		act: map[member.Key]*tunnel.Activity{}, got: map[uint64]bool{}, roamed: map[member.Key]netip.AddrPort{}, calls: map[string]int{},
	}
}

func (e *engine) apply(d *device, cfg tunnel.Config) error {
	key, err := cfg.Key.Public()
	if err != nil {
		return err
	}
	if d.key != key {
		for _, w := range d.peers {
			w.session, w.pending, w.asking, w.began = time.Time{}, 0, 0, time.Time{}
		}
	}
	d.key = key
	was := d.peers
	d.peers = map[member.Key]*wgPeer{}
	for _, p := range cfg.Peers {
		w := was[p.Key]
		if w == nil || w.Probes != p.Probes {
			w = &wgPeer{}
		}
		idle := w.Keepalive == 0
		w.Peer = p
		d.peers[p.Key] = w
		if idle && p.Keepalive > 0 {
			e.keep(d, w)
		}
		if e.act[p.Key] == nil {
			e.act[p.Key] = &tunnel.Activity{}
		}
	}
	return nil
}

// keep sends keepalives.
func (e *engine) keep(d *device, p *wgPeer) {
	time.AfterFunc(p.Keepalive, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if d.peers[p.Key] != p || p.Keepalive == 0 {
			return
		}
		if p.session.IsZero() || time.Since(p.session) >= 120*time.Second {
			e.shake(d, p)
		} else {
			e.data(d, p, nil)
		}
		e.keep(d, p)
	})
}

func (e *engine) locked(call string) func() {
	e.mu.Lock()
	e.calls[call]++
	return e.mu.Unlock
}

func (e *engine) Apply(cfg tunnel.Config) error {
	defer e.locked("Apply")()
	if err := e.fail; err != nil {
		e.fail = nil
		return err
	}
	return e.apply(e.now, cfg)
}

func (e *engine) SetPath(k member.Key, w path.Path, local netip.Addr) bool {
	defer e.locked("SetPath")()
	if e.act[k] == nil {
		return false
	}
	was := e.paths[k]
	e.paths[k], e.locals[k] = w, local
	delete(e.roamed, k)
	if p := e.now.peers[k]; p != nil && was != w && !p.began.IsZero() && time.Since(p.began) < 5*time.Second {
		e.emit(k, message(1, e.now.key, k, id(p.asking)))
	}
	return true
}

func (e *engine) Watch(k member.Key) { defer e.locked("Watch")(); e.watched[k] = true }

func (e *engine) Receive(_ member.Key, b []byte) bool { e.come(netip.AddrPort{}, b); return true }

func (e *engine) TryPSK(k member.Key, psk tunnel.Secret) error {
	defer e.locked("TryPSK")()
	p := e.now.peers[k]
	if p == nil {
		return errors.New("no such peer")
	}
	p.PSK = psk
	e.shake(e.now, p)
	return nil
}

func (e *engine) Handshake(k member.Key) error {
	defer e.locked("Handshake")()
	if p := e.now.peers[k]; p != nil {
		e.shake(e.now, p)
	}
	return nil
}

func (e *engine) Activity(k member.Key) (tunnel.Activity, bool) {
	defer e.locked("Activity")()
	a := e.act[k]
	if a == nil {
		return tunnel.Activity{}, false
	}
	return *a, true
}

func (e *engine) stats(d *device) (out []tunnel.Stat) {
	for k, p := range d.peers {
		s := tunnel.Stat{Key: k, Handshake: p.handshake, Sent: p.sent}
		if at := e.roamed[k]; at.IsValid() {
			s.Heard = at
		} else if w := e.paths[k]; w.Direct() && !p.Probes && !p.handshake.IsZero() {
			s.Heard = w.Addr
		}
		out = append(out, s)
	}
	return out
}

func (e *engine) Stats() ([]tunnel.Stat, error) {
	defer e.locked("Stats")()
	for k, p := range e.now.peers {
		if a := e.act[k]; !p.handshake.IsZero() && p.handshake.After(a.Asked) {
			a.Asked = time.Time{}
		}
	}
	return e.stats(e.now), nil
}

// shake begins a handshake, unless one began just now; it is repeated.
func (e *engine) shake(d *device, p *wgPeer) {
	if time.Since(p.began) < 5*time.Second {
		return
	}
	p.began, p.tries = time.Now(), 0
	e.initiate(d, p)
}

func (e *engine) initiate(d *device, p *wgPeer) {
	k, began := p.Key, p.began
	if a := e.act[k]; a.Asked.IsZero() {
		a.Asked = time.Now()
	}
	p.asking = counter.Add(1)
	e.emit(k, message(1, d.key, k, id(p.asking)))
	time.AfterFunc(5*time.Second, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if now := d.peers[k]; now == p && p.began.Equal(began) && p.tries < 18 {
			p.tries++
			p.began = time.Now()
			e.initiate(d, p)
		}
	})
}

// emit sends by the path that there is, and wakes.
func (e *engine) emit(k member.Key, b []byte) {
	if e.watched[k] {
		e.watched[k] = false
		e.n.p.Wake(k)
	}
	switch w := e.paths[k]; {
	case e.roamed[k].IsValid():
		e.n.w.carry(e.n, e.roamed[k], b, false)
	case w.Direct():
		e.n.w.carry(e.n, w.Addr, b, false)
	case !w.IsZero():
		e.n.p.Relay(w.Relay, k, [][]byte{b})
	}
}

// say sends a numbered packet into the tunnel.
func (e *engine) say(to netip.Addr, number uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	d, p := e.now, (*wgPeer)(nil)
	for _, w := range d.peers {
		if slices.ContainsFunc(w.Ranges, func(r netip.Prefix) bool { return r.Contains(to) }) {
			p = w
		}
	}
	if p == nil {
		return
	}
	b := numbered(number, e.n.inside)
	if p.session.IsZero() || time.Since(p.session) >= 180*time.Second {
		p.staged = b
		e.shake(d, p)
		return
	}
	if time.Since(p.session) >= 120*time.Second {
		e.shake(d, p)
	}
	e.data(d, p, b)
}

func id(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

func (e *engine) data(d *device, p *wgPeer, b []byte) {
	p.sent += uint64(len(b))
	if len(b) > 0 {
		e.act[p.Key].Sent++
		e.act[p.Key].LastSent = time.Now()
	}
	e.emit(p.Key, message(4, d.key, p.Key, append(id(p.ids[0]), b...)))
}

// accept has a session be the one that is used.
func (p *wgPeer) accept(n uint64) {
	p.ids = [2]uint64{n, p.ids[0]}
	p.session, p.handshake = time.Now(), time.Now()
}

// come takes a packet from the socket or the relay.
func (e *engine) come(at netip.AddrPort, b []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	from, to, rest := member.Key(b[4:36]), member.Key(b[36:68]), b[68:]
	if p := e.now.peers[from]; e.now.key == to && p != nil {
		if !p.Probes && at.IsValid() && at != e.paths[from].Addr {
			e.roamed[from] = at
		}
		e.handle(e.now, p, b[0], rest)
	}
}

func (e *engine) handle(d *device, p *wgPeer, kind byte, rest []byte) {
	psk := p.PSK.Bytes()
	n := binary.BigEndian.Uint64(rest)
	switch kind {
	case 1:
		if e.deaf {
			return
		}
		p.pending = n
		e.emit(p.Key, message(2, d.key, p.Key, append(id(n), psk[:]...)))
	case 2:
		if n != p.asking || !bytes.Equal(rest[8:], psk[:]) {
			return
		}
		p.asking, p.began = 0, time.Time{}
		p.accept(n)
		b := p.staged
		p.staged = nil
		e.data(d, p, b)
	case 4:
		if n == p.pending {
			p.pending, p.asking, p.began = 0, 0, time.Time{} // its own tries end with that, too
			p.accept(n)
		}
		if rest = rest[8:]; len(rest) == 0 || n != p.ids[0] && n != p.ids[1] {
			return
		}
		a := e.act[p.Key]
		a.Received++
		a.LastReceived = time.Now()
		if e.watched[p.Key] {
			e.watched[p.Key] = false
			e.n.p.Wake(p.Key)
		}
		source, _ := netip.AddrFromSlice(rest[8:])
		if !slices.ContainsFunc(p.Ranges, func(r netip.Prefix) bool { return r.Contains(source) }) {
			e.refused++
			return
		}
		e.got[binary.BigEndian.Uint64(rest)] = true
	}
}

// has reports whether a packet arrived.
func (e *engine) has(number uint64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.got[number]
}

func (e *engine) called(what string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.calls[what]
}

// psk is the preshared key that a peer has.
func (e *engine) psk(k member.Key) tunnel.Secret {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.now.peers[k].PSK
}

// local is where packets to a peer leave from.
func (e *engine) local(k member.Key) netip.Addr {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.locals[k]
}
