// SPDX-License-Identifier: Apache-2.0

package wireguard

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/mesh/tunnel"
)

// Apply makes the peers those of cfg, by what differs from what the kernel has: whoever
// stays keeps its session. A link with another key gets this one.
func (d *Device) Apply(cfg tunnel.Config) error {
	if cfg.Key.IsZero() {
		return fault.New(fault.CodeConfig, "WireGuard's key").Whyf("there is none")
	}
	own, err := cfg.Key.Public()
	if err != nil {
		return err
	}
	want, err := tunnel.Checked(cfg, own)
	if err != nil {
		return err
	}
	var sink [32]byte
	if _, err := rand.Read(sink[:]); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	have, err := d.parts.Control.Device(d.name)
	if err != nil {
		return d.failed("reading", err)
	}
	d.learn(have)
	if have.PrivateKey != wgtypes.Key(cfg.Key.Bytes()) {
		key := wgtypes.Key(cfg.Key.Bytes())
		if err := d.parts.Control.ConfigureDevice(d.name, wgtypes.Config{PrivateKey: &key}); err != nil {
			return fmt.Errorf("WireGuard's key: %w", d.failed("changing", err))
		}
	}
	for k := range want {
		if d.peers[k] == nil {
			d.peers[k] = &seen{}
		}
	}
	for _, peers := range changes(have.Peers, want, sink) {
		if err := d.parts.Control.ConfigureDevice(d.name, wgtypes.Config{Peers: peers}); err != nil {
			return fmt.Errorf("WireGuard's peers: %w", d.failed("changing", err)) // the next one compares again
		}
	}
	for k, s := range d.peers {
		if p, ok := want[k]; ok {
			s.keepalive, s.probes = p.Keepalive, p.Probes
		} else {
			delete(d.peers, k)
		}
	}
	return nil
}

// changes is what has to be said to the kernel so that its peers become those that are
// wanted, message by message. What is there already is not mentioned. Ranges are given
// before they are taken, so that one which moves is always somebody's; what nobody has
// any more goes to the sink, which is removed in the same message.
func changes(have []wgtypes.Peer, want map[member.Key]tunnel.Peer, sink [32]byte) [][]wgtypes.PeerConfig {
	was := make(map[member.Key]wgtypes.Peer, len(have))
	for _, p := range have {
		was[member.Key(p.PublicKey)] = p
	}
	wanted := map[netip.Prefix]bool{}
	var m messages
	for _, k := range ordered(want) {
		for _, r := range want[k].Ranges {
			wanted[r.Masked()] = true
		}
		h, ok := was[k]
		m.change(k, h, want[k], !ok)
	}
	m.end()
	var gone []netip.Prefix
	for _, k := range ordered(was) {
		if _, stays := want[k]; !stays {
			continue // they go with it
		}
		for _, n := range was[k].AllowedIPs {
			if r := prefix(n); !wanted[r] {
				gone = append(gone, r)
			}
		}
	}
	for part := range slices.Chunk(gone, wireGuardRanges) {
		m.done = append(m.done, []wgtypes.PeerConfig{
			{PublicKey: sink, AllowedIPs: networks(part)},
			{PublicKey: sink, Remove: true},
		})
	}
	for _, k := range ordered(was) {
		if _, stays := want[k]; !stays {
			m.add(wgtypes.PeerConfig{PublicKey: wgtypes.Key(k), UpdateOnly: true, Remove: true})
		}
	}
	m.end()
	return m.done
}

// messages are filled one after the other: the kernel takes so much at a time.
type messages struct {
	done   [][]wgtypes.PeerConfig
	now    []wgtypes.PeerConfig
	ranges int
}

func (m *messages) add(p wgtypes.PeerConfig) {
	if len(m.now) >= wireGuardPeers || m.ranges+len(p.AllowedIPs) > wireGuardRanges {
		m.end()
	}
	m.now = append(m.now, p)
	m.ranges += len(p.AllowedIPs)
}

func (m *messages) end() {
	if len(m.now) > 0 {
		m.done = append(m.done, m.now)
	}
	m.now, m.ranges = nil, 0
}

// change says what differs of one peer.
func (m *messages) change(k member.Key, have wgtypes.Peer, want tunnel.Peer, fresh bool) {
	c := wgtypes.PeerConfig{PublicKey: wgtypes.Key(k), UpdateOnly: !fresh}
	differs := fresh
	if psk := wgtypes.Key(want.PSK.Bytes()); have.PresharedKey != psk {
		c.PresharedKey, differs = &psk, true
	}
	if fresh && want.First.IsValid() {
		c.Endpoint = udp(unmapped(want.First))
	}
	if have.PersistentKeepaliveInterval != want.Keepalive.Truncate(time.Second) {
		every := want.Keepalive
		c.PersistentKeepaliveInterval, differs = &every, true
	}
	has := make(map[netip.Prefix]bool, len(have.AllowedIPs))
	for _, n := range have.AllowedIPs {
		has[prefix(n)] = true
	}
	var more []netip.Prefix
	for _, r := range want.Ranges {
		if r = r.Masked(); !has[r] {
			has[r] = true
			more = append(more, r)
		}
	}
	for len(more) > wireGuardRanges {
		c.AllowedIPs = networks(more[:wireGuardRanges])
		m.add(c)
		more, differs = more[wireGuardRanges:], true
		c = wgtypes.PeerConfig{PublicKey: wgtypes.Key(k), UpdateOnly: true}
	}
	if c.AllowedIPs = networks(more); differs || len(more) > 0 {
		m.add(c)
	}
}

func ordered[V any](m map[member.Key]V) []member.Key {
	return slices.SortedFunc(maps.Keys(m), func(a, b member.Key) int { return bytes.Compare(a[:], b[:]) })
}

func prefix(n net.IPNet) netip.Prefix {
	a, _ := netip.AddrFromSlice(n.IP)
	bits, of := n.Mask.Size()
	if of == 32 {
		a = a.Unmap()
	}
	return netip.PrefixFrom(a, bits).Masked()
}

func networks(all []netip.Prefix) (out []net.IPNet) {
	for _, r := range all {
		out = append(out, net.IPNet{IP: r.Addr().AsSlice(), Mask: net.CIDRMask(r.Bits(), r.Addr().BitLen())})
	}
	return out
}
