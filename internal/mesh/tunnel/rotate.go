// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"net/netip"

	"golang.zx2c4.com/wireguard/device"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/member"
)

// Begin runs a second device with a new key pair beside the first, on the same socket
// and TUN. Both receive; each peer's packets go by the first until it is shifted.
//
//	Begin ──► handshakes with the new key ──► Shift, peer by peer ──► End: the second is the first
func (e *Engine) Begin(cfg Config) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.next != nil:
		return fault.New(fault.CodeInternal, "WireGuard's new key").Whyf("there are two devices already")
	case e.now.key.IsZero() || e.now.key.Equal(cfg.Key):
		return fault.New(fault.CodeInternal, "WireGuard's new key").Whyf("it is the one that there is, or there is none yet")
	}
	e.route() // before the second one reads what the first shall send
	u, err := e.unit()
	if err != nil {
		e.fork.table.Store(nil)
		return err
	}
	e.next, e.shifted = u, map[member.Key]bool{}
	if err := e.apply(u, cfg); err != nil {
		e.drop(u)
		return err
	}
	return nil
}

// ApplyNext is Apply for the device of the new key pair.
func (e *Engine) ApplyNext(cfg Config) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.next == nil {
		return errNoNext()
	}
	return e.apply(e.next, cfg)
}

func errNoNext() error {
	return fault.New(fault.CodeInternal, "WireGuard's new key").Whyf("there is no second device")
}

// StatsNext are those of the device of the new key pair. They have no activity: it is
// the peer's, whichever device it is with.
func (e *Engine) StatsNext() ([]Stat, error) {
	e.mu.Lock()
	u := e.next
	e.mu.Unlock()
	if u == nil {
		return nil, errNoNext()
	}
	return u.stats()
}

// HandshakeNext begins one by the device of the new key pair alone, unless its last one
// began less than 5 s ago.
func (e *Engine) HandshakeNext(k member.Key) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.next == nil {
		return errNoNext()
	}
	p := e.next.dev.LookupPeer(device.NoisePublicKey(k))
	if p == nil {
		return fault.Newf(fault.CodeNotFound, "peer %s", k.Short())
	}
	return p.SendHandshakeInitiation(false)
}

// Shift has packets to a peer go by the device of the new key pair from now on: it has
// a session there.
func (e *Engine) Shift(k member.Key) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.next == nil {
		return errNoNext()
	}
	e.shifted[k] = true
	e.route()
	return nil
}

// End ends the first device; the second one, with all peers, is the engine from now on.
func (e *Engine) End() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.next == nil {
		return errNoNext()
	}
	for k := range e.next.have {
		e.shifted[k] = true
	}
	e.route() // nothing goes to the one that ends
	was := e.now
	e.now = e.next
	e.bind.Store(e.now.bind)
	e.drop(was)
	return nil
}

// drop ends one device of two, and what only it knew.
func (e *Engine) drop(u *unit) {
	u.dev.Close()
	e.next, e.shifted = nil, nil
	e.fork.table.Store(nil)
	for k := range u.have {
		if !e.has(k) {
			e.peers.remove(k)
		}
	}
}

// route says which device sends to which range. While there is one it is not asked for.
func (e *Engine) route() {
	of := map[netip.Prefix]*side{}
	for _, u := range []*unit{e.now, e.next} {
		if u == nil {
			continue
		}
		for k, p := range u.have {
			for _, r := range p.Ranges {
				if u == e.now || e.shifted[k] || of[r.Masked()] == nil {
					of[r.Masked()] = u.side
				}
			}
		}
	}
	e.fork.table.Store(newTable(of))
}
