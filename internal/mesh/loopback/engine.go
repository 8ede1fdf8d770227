// SPDX-License-Identifier: Apache-2.0

package loopback

import (
	"context"
	"net/netip"
	"sync"

	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/mesh/path"
	"github.com/tombolo-io/tombolo/internal/mesh/tunnel"
)

// Kernel is an engine of the kernel, which sends to addresses and knows no relay: a *wireguard.Device, or an
// *ipsectunnel.Engine.
type Kernel interface {
	Tunnels
	Traffic
}

// Tunnels are what a Kernel is told.
type Tunnels interface {
	Apply(tunnel.Config) error
	SetPath(k member.Key, w path.Path, local netip.Addr) bool
	TryPSK(k member.Key, psk tunnel.Secret) error
	Handshake(member.Key) error
}

// Traffic is what a Kernel shows.
type Traffic interface {
	Watch(member.Key)
	Activity(member.Key) (tunnel.Activity, bool)
	Stats() ([]tunnel.Stat, error)
}

// Port is where the kernel sends what is for peers behind a relay: a *Socket.
type Port interface {
	Port() uint16
	// Send has the kernel get a packet from a peer's address.
	Send(from netip.Addr, packet []byte) error
	// Run hands over what the kernel has sent to peers' addresses, until ctx ends. A packet is good until take returns.
	Run(ctx context.Context, take func(to netip.Addr, packet []byte)) error
}

// Relay sends packets to a peer by a hub, and copies what it keeps: a *peering.Datapath.
type Relay interface {
	Relay(hub string, k member.Key, packets [][]byte)
}

// Engine is a Kernel that knows relays. Its methods may be called by several goroutines.
type Engine struct {
	Kernel
	port  Port
	relay Relay
	mark  string

	mu     sync.RWMutex
	peers  map[member.Key]*place
	places map[netip.Addr]*place
	last   netip.Addr // that was given
}

// place is where the kernel finds a peer behind a relay.
type place struct {
	key  member.Key
	addr netip.Addr
	hub  string // the last one; empty: none yet
}

// New makes one.
//
//	mark: what packets have in front between nodes, so that hubs can tell what they are; may be empty
func New(k Kernel, p Port, r Relay, mark string) *Engine {
	return &Engine{Kernel: k, port: p, relay: r, mark: mark, last: highest(),
		peers: map[member.Key]*place{}, places: map[netip.Addr]*place{}}
}

// Apply makes the peers those of cfg. Those that are found by probes get a place, and keep it.
func (e *Engine) Apply(cfg tunnel.Config) error {
	e.mu.Lock()
	stay := map[member.Key]bool{}
	for _, p := range cfg.Peers {
		stay[p.Key] = p.Probes
	}
	for k, p := range e.peers {
		if !stay[k] {
			delete(e.peers, k)
			delete(e.places, p.addr)
		}
	}
	for _, p := range cfg.Peers {
		if p.Probes {
			e.placeLocked(p.Key)
		}
	}
	e.mu.Unlock()
	return e.Kernel.Apply(cfg)
}

// placeLocked gives a peer a place, if there is one left.
func (e *Engine) placeLocked(k member.Key) {
	if e.peers[k] != nil || len(e.places) >= places {
		return
	}
	for again := true; again; again = e.places[e.last] != nil {
		if e.last = e.last.Next(); highest().Less(e.last) {
			e.last = lowest()
		}
	}
	p := &place{key: k, addr: e.last}
	e.peers[k], e.places[p.addr] = p, p
}

// SetPath has packets to a peer go by a path from now on: by the place of the peer, if that leads through a relay.
func (e *Engine) SetPath(k member.Key, w path.Path, local netip.Addr) bool {
	if w.Direct() || w.IsZero() {
		return e.Kernel.SetPath(k, w, local)
	}
	e.mu.Lock()
	p := e.peers[k]
	if p != nil {
		p.hub = w.Relay // and stays: what the peer sends by it has the kernel answer by it
	}
	e.mu.Unlock()
	if p == nil {
		return e.Kernel.SetPath(k, path.Path{}, netip.Addr{})
	}
	return e.Kernel.SetPath(k, path.Path{Addr: netip.AddrPortFrom(p.addr, e.port.Port())}, local4())
}

// Receive takes a packet of a peer from the relay. It says false of one that is not the kernel's.
func (e *Engine) Receive(k member.Key, packet []byte) bool {
	e.mu.RLock()
	p := e.peers[k]
	e.mu.RUnlock()
	if p == nil || len(packet) <= len(e.mark) || string(packet[:len(e.mark)]) != e.mark {
		return false
	}
	return e.port.Send(p.addr, packet[len(e.mark):]) == nil
}

// Run passes on what the kernel sends, until ctx ends.
func (e *Engine) Run(ctx context.Context) error {
	buffer := []byte(e.mark)
	return e.port.Run(ctx, func(to netip.Addr, packet []byte) {
		e.mu.RLock()
		p := e.places[to]
		var hub string
		if p != nil {
			hub = p.hub
		}
		e.mu.RUnlock()
		if hub == "" { // nobody's, or of a peer that was never reached by a relay
			return
		}
		buffer = append(buffer[:len(e.mark)], packet...)
		e.relay.Relay(hub, p.key, [][]byte{buffer})
	})
}
