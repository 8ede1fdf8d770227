// SPDX-License-Identifier: Apache-2.0

package wireguard

import (
	"fmt"
	"net/netip"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/mesh/path"
	"github.com/tombolo-io/tombolo/internal/mesh/tunnel"
)

// SetPath has packets to a peer go to an endpoint from now on. No path leaves the one that
// WireGuard has: it knows no better. Where packets leave from, the kernel chooses. It says false
// of a peer that is not configured.
func (d *Device) SetPath(k member.Key, w path.Path, _ netip.Addr) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.peers[k]
	if s == nil {
		return false
	}
	s.to = netip.AddrPort{}
	if !w.Direct() {
		return true
	}
	to := unmapped(w.Addr)
	s.to = to
	shakes := s.shakes
	if time.Since(d.looked) >= wireGuardStale {
		if err := d.lookLocked(); err != nil {
			return false
		}
	}
	if s.heard == to {
		return true
	}
	if s.shakes != shakes && !s.probes { // a handshake came meanwhile: whoever chose this path does not know it yet
		return true
	}
	err := d.parts.Control.ConfigureDevice(d.name, wgtypes.Config{Peers: []wgtypes.PeerConfig{{
		PublicKey: wgtypes.Key(k), UpdateOnly: true, Endpoint: udp(to),
	}}})
	if err != nil {
		return false
	}
	s.heard = to
	return true
}

// TryPSK has a peer use another preshared key from its next handshake on, which is begun now
// if there is no session.
func (d *Device) TryPSK(k member.Key, psk tunnel.Secret) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.peers[k]
	if s == nil {
		return fault.Newf(fault.CodeNotFound, "peer %v", k)
	}
	key := wgtypes.Key(psk.Bytes())
	err := d.parts.Control.ConfigureDevice(d.name, wgtypes.Config{Peers: []wgtypes.PeerConfig{{
		PublicKey: wgtypes.Key(k), UpdateOnly: true, PresharedKey: &key,
	}}})
	if err != nil {
		return fmt.Errorf("preshared key of %v: %w", k, err)
	}
	return d.shake(k, s)
}

// Handshake begins one if there is no session, unless the last one began less than 5 s ago.
func (d *Device) Handshake(k member.Key) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.peers[k]
	if s == nil {
		return fault.Newf(fault.CodeNotFound, "peer %v", k)
	}
	return d.shake(k, s)
}

// shake has the keepalive interval become one from none, and leaves it as it was. Within
// the first 120 s of a session that would begin nothing.
func (d *Device) shake(k member.Key, s *seen) error {
	if !s.shook.IsZero() && time.Since(s.shook) < wireGuardFresh {
		return nil
	}
	intervals := []time.Duration{0, max(s.keepalive, time.Second)}
	if s.keepalive == 0 {
		intervals = append(intervals, 0)
	}
	var cfg wgtypes.Config
	for _, i := range intervals {
		cfg.Peers = append(cfg.Peers,
			wgtypes.PeerConfig{PublicKey: wgtypes.Key(k), UpdateOnly: true, PersistentKeepaliveInterval: &i})
	}
	if err := d.parts.Control.ConfigureDevice(d.name, cfg); err != nil {
		return fmt.Errorf("handshake with %v: %w", k, err)
	}
	s.begun = time.Now()
	s.shaken(s.begun)
	return nil
}
