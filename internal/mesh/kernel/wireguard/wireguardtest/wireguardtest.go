// SPDX-License-Identifier: Apache-2.0

// Package wireguardtest is the kernel's WireGuard in memory, without cryptography: links,
// the rules by which it is told of peers, handshakes that need the same preshared key at
// both ends, sessions of 180 s, keepalives, roaming, and ranges that one peer has. With it
// comes a contract that holds for it and the real one.
package wireguardtest

import (
	"crypto/ecdh"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/tombolo-io/tombolo/internal/mesh/kernel/wireguard"
)

// The times of WireGuard (whitepaper, section 6.1).
const (
	rekeyAfter, rejectAfter = 120 * time.Second, 180 * time.Second
	repeat, tries           = 5 * time.Second, 18
	passive                 = 10 * time.Second
)

// Kernel is in memory: links of one machine.
type Kernel struct {
	// Emit sends a packet of WireGuard; nil: it is lost. It must not call the kernel.
	Emit func(to netip.AddrPort, b []byte)
	Busy map[uint16]bool // ports that others have
	Fail error           // of the next change, once

	mu     sync.Mutex
	links  map[string]*link
	told   [][]wgtypes.PeerConfig // messages with peers
	all    int                    // messages
	holes  map[netip.Prefix]int   // how often a range was nobody's after it was somebody's
	number uint64
	got    map[uint64]bool
	refuse int
	last   uint16
}

type link struct {
	kind  wireguard.Kind
	up    bool
	dev   wgtypes.Device
	peers []*peer // in the order in which they were made
}

type peer struct {
	of    *link
	key   wgtypes.Key
	psk   wgtypes.Key
	at    netip.AddrPort
	every time.Duration
	owns  []netip.Prefix

	shook   time.Time // the wall clock, as the kernel tells it
	session time.Time
	first   bool // this end began it
	ids     [2]uint64
	pending uint64
	asking  uint64
	began   time.Time
	tried   int
	staged  [][]byte
	tx, rx  int64
	sent    time.Time
	timer   *time.Timer
}

// New is a machine without links.
func New() *Kernel {
	return &Kernel{Busy: map[uint16]bool{}, links: map[string]*link{}, holes: map[netip.Prefix]int{},
		got: map[uint64]bool{}, last: 40_000}
}

// Put makes a foreign link.
func (k *Kernel) Put(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.links[name] = &link{kind: wireguard.Foreign}
}

// Kind is that of wireguard.Links.
func (k *Kernel) Kind(name string) (wireguard.Kind, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l := k.links[name]; l != nil {
		return l.kind, nil
	}
	return wireguard.None, nil
}

// Make is that of wireguard.Links.
func (k *Kernel) Make(name string, _ int) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.links[name] != nil {
		return unix.EEXIST
	}
	k.links[name] = &link{kind: wireguard.Ours, dev: wgtypes.Device{Name: name, Type: wgtypes.LinuxKernel}}
	return nil
}

// Remove is that of wireguard.Links.
func (k *Kernel) Remove(name string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l := k.links[name]; l != nil && l.kind == wireguard.Ours {
		delete(k.links, name)
		l.peers = nil
	}
	return nil
}

// Rename gives a link another name, as another program may do.
func (k *Kernel) Rename(name, other string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.links[other] = k.links[name]
	delete(k.links, name)
}

// Free is that of wireguard.Links.
func (k *Kernel) Free(port uint16) (uint16, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if port == 0 {
		k.last++
		return k.last, nil
	}
	if k.taken(port, nil) {
		return 0, unix.EADDRINUSE
	}
	return port, nil
}

func (k *Kernel) taken(port uint16, by *link) bool {
	for _, l := range k.links {
		if l != by && l.up && l.dev.ListenPort == int(port) {
			return true
		}
	}
	return k.Busy[port]
}

// IPv6 is that of wireguard.Links.

// Close is that of wireguard.Control.
func (k *Kernel) Close() error { return nil }

// Up sets a link up, as routing does.
func (k *Kernel) Up(name string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	l := k.links[name]
	switch {
	case l == nil:
		return unix.ENODEV
	case k.taken(uint16(l.dev.ListenPort), l):
		return unix.EADDRINUSE
	case l.up:
		return nil
	}
	l.up = true
	for _, p := range l.peers {
		if p.every > 0 {
			k.keep(p)
		}
	}
	return nil
}

// Told gives the messages with peers since the last call, and how many there were of all.
func (k *Kernel) Told() (peers [][]wgtypes.PeerConfig, all int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	peers, all = k.told, k.all
	k.told, k.all = nil, 0
	return peers, all
}

// Holes are how often a range was nobody's for a while after it had been a peer's.
func (k *Kernel) Holes() map[netip.Prefix]int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.holes
}

// Device is that of wireguard.Control.
func (k *Kernel) Device(name string) (*wgtypes.Device, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l := k.links[name]
	if l == nil || l.kind != wireguard.Ours {
		return nil, os.ErrNotExist
	}
	out := l.dev
	out.Peers = nil
	for _, p := range l.peers {
		t := wgtypes.Peer{
			PublicKey: p.key, PresharedKey: p.psk, PersistentKeepaliveInterval: p.every, LastHandshakeTime: p.shook,
			TransmitBytes: p.tx, ReceiveBytes: p.rx,
		}
		if p.at.IsValid() {
			t.Endpoint = net.UDPAddrFromAddrPort(p.at)
		}
		for _, r := range p.owns {
			t.AllowedIPs = append(t.AllowedIPs,
				net.IPNet{IP: r.Addr().AsSlice(), Mask: net.CIDRMask(r.Bits(), r.Addr().BitLen())})
		}
		out.Peers = append(out.Peers, t)
	}
	return &out, nil
}

// ConfigureDevice is that of wireguard.Control: entry by entry, as the kernel does it.
func (k *Kernel) ConfigureDevice(name string, cfg wgtypes.Config) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	l := k.links[name]
	if l == nil {
		return os.ErrNotExist
	}
	if err := k.Fail; err != nil {
		k.Fail = nil
		return err
	}
	k.all++
	if err := k.set(l, cfg); err != nil {
		return err
	}
	if len(cfg.Peers) > 0 {
		k.told = append(k.told, cfg.Peers)
	}
	before := k.owners(name)
	for _, c := range cfg.Peers {
		k.setPeer(l, c)
		now := k.owners(name)
		for r := range before {
			if !now[r] {
				k.holes[r]++
			}
		}
		before = now
	}
	return nil
}

func (k *Kernel) set(l *link, cfg wgtypes.Config) error {
	if cfg.ListenPort != nil {
		if l.up && k.taken(uint16(*cfg.ListenPort), l) {
			return unix.EADDRINUSE
		}
		l.dev.ListenPort = *cfg.ListenPort
	}
	if cfg.FirewallMark != nil {
		l.dev.FirewallMark = *cfg.FirewallMark
	}
	if cfg.PrivateKey != nil && *cfg.PrivateKey != l.dev.PrivateKey {
		private, err := ecdh.X25519().NewPrivateKey(cfg.PrivateKey[:])
		if err != nil {
			return err
		}
		l.dev.PrivateKey, l.dev.PublicKey = *cfg.PrivateKey, wgtypes.Key(private.PublicKey().Bytes())
		for _, p := range l.peers {
			p.session, p.asking = time.Time{}, 0
		}
	}
	if cfg.ReplacePeers {
		l.peers = nil
	}
	return nil
}

func (k *Kernel) owners(name string) map[netip.Prefix]bool {
	out := map[netip.Prefix]bool{}
	for _, p := range k.links[name].peers {
		for _, r := range p.owns {
			out[r] = true
		}
	}
	return out
}

func (k *Kernel) setPeer(l *link, c wgtypes.PeerConfig) {
	i := slices.IndexFunc(l.peers, func(p *peer) bool { return p.key == c.PublicKey })
	switch {
	case i < 0 && (c.Remove || c.UpdateOnly):
		return
	case c.Remove:
		l.peers = slices.Delete(l.peers, i, i+1)
		return
	case i < 0:
		i = len(l.peers)
		l.peers = append(l.peers, &peer{of: l, key: c.PublicKey})
	}
	p := l.peers[i]
	if c.PresharedKey != nil {
		p.psk = *c.PresharedKey
	}
	if c.Endpoint != nil {
		p.at = netip.AddrPortFrom(c.Endpoint.AddrPort().Addr().Unmap(), uint16(c.Endpoint.Port))
	}
	if c.ReplaceAllowedIPs {
		p.owns = nil
	}
	for _, n := range c.AllowedIPs {
		a, _ := netip.AddrFromSlice(n.IP)
		bits, _ := n.Mask.Size()
		r := netip.PrefixFrom(a, bits).Masked()
		for _, o := range l.peers {
			o.owns = slices.DeleteFunc(o.owns, func(x netip.Prefix) bool { return x == r })
		}
		p.owns = append(p.owns, r)
	}
	if every := c.PersistentKeepaliveInterval; every != nil {
		was := p.every
		if p.every = *every; was == 0 && *every > 0 && l.up {
			k.keep(p)
		}
	}
}

// String is what the kernel has, without secrets.
func (k *Kernel) String() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := ""
	for name, l := range k.links {
		out += fmt.Sprintf("%s up=%v port=%d\n", name, l.up, l.dev.ListenPort)
		for _, p := range l.peers {
			out += fmt.Sprintf("  %v at %v every %v: %v\n", p.key, p.at, p.every, p.owns)
		}
	}
	return out
}
