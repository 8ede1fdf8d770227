// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"sync"
	"sync/atomic"

	"github.com/tombolo-io/tombolo/internal/base/member"
)

// Relay passes datagrams to a peer by a hub, and says how many were taken. It copies what it
// keeps, and never waits.
type Relay interface {
	Send(hub, peer string, datagrams ...[]byte) int
}

// Datapath is what WireGuard's packets meet of a Peering. It is made first: the engine needs it,
// and the Peering, which needs the engine, fills it. No packet waits for what changes the peers.
type Datapath struct {
	relay       Relay // may be nil
	seen        atomic.Pointer[view]
	relayedSent atomic.Uint64 // bytes
	bell        chan struct{} // holds one: some peer has woken

	wokenMu sync.Mutex
	woken   map[member.Key]bool
}

// NewDatapath makes one without peers; r may be nil.
func NewDatapath(r Relay) *Datapath {
	d := &Datapath{relay: r, bell: make(chan struct{}, 1)}
	d.seen.Store(&view{})
	return d
}

// Wake says that a peer which was watched has traffic.
func (d *Datapath) Wake(k member.Key) {
	d.wokenMu.Lock()
	if d.woken == nil {
		d.woken = map[member.Key]bool{}
	}
	d.woken[k] = true
	d.wokenMu.Unlock()
	select {
	case d.bell <- struct{}{}:
	default:
	}
}

// wakes are the peers that have woken since it was asked last.
func (d *Datapath) wakes() map[member.Key]bool {
	d.wokenMu.Lock()
	defer d.wokenMu.Unlock()
	woken := d.woken
	d.woken = nil
	return woken
}

// Relay sends packets of the engine to the peer of a key by a hub.
func (d *Datapath) Relay(hub string, k member.Key, packets [][]byte) {
	name, ok := d.seen.Load().names[k]
	if !ok || d.relay == nil {
		return
	}
	for _, b := range packets {
		d.relayedSent.Add(uint64(len(b)))
	}
	d.relay.Send(hub, name, packets...)
}
