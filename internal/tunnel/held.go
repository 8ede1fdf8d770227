// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"bytes"
	"sync"
	"time"

	"github.com/tombolo-io/tombolo/internal/limit"
	"github.com/tombolo-io/tombolo/internal/run"
)

// held are handshakes that wait for a moment before they are sent.
//
// A peer that speaks no probes has the kernel's WireGuard, and does not know what to do when
// handshakes cross (see crossing). If it has the greater public key, it is to go first: our
// own handshake waits, and is dropped when we answer the peer's meanwhile. Members that learn
// of each other at one moment begin at one moment. If ours is the greater key, all is settled
// at this end.
type held struct {
	bind  *Bind
	alarm *run.Alarm

	mu      sync.Mutex
	waiting []heldOne // the first one is due first: all wait equally long
}

type heldOne struct {
	to    *endpoint
	shake *handshake
}

func newHeld(b *Bind) *held {
	h := &held{bind: b}
	h.alarm = run.NewAlarm(h.ring)
	return h
}

// yields reports whether a peer may go first.
func (b *Bind) yields(packets [][]byte, e *endpoint) bool {
	own := b.public.Load()
	return own != nil && !e.probes.Load() && len(packets) == 1 && isInitiation(packets[0]) && bytes.Compare(own[:], e.key[:]) < 0
}

// put has the peer's newest handshake wait.
func (h *held) put(e *endpoint) {
	shake := e.newest.Load()
	if shake == nil {
		return // answered before it could wait
	}
	shake.held.Store(true)
	h.mu.Lock()
	if len(h.waiting) >= limit.TunnelHeld { // the one that waited longest waits no more
		first := h.waiting[0]
		h.waiting = h.waiting[1:]
		defer h.send(first)
	}
	h.waiting = append(h.waiting, heldOne{e, shake})
	h.mu.Unlock()
	h.alarm.Ring()
}

// ring sends what is due.
func (h *held) ring() time.Duration {
	for {
		h.mu.Lock()
		if len(h.waiting) == 0 {
			h.waiting = nil
			h.mu.Unlock()
			return -1
		}
		first := h.waiting[0]
		if left := limit.TunnelHold - time.Since(first.shake.at); left > 0 {
			h.mu.Unlock()
			return left
		}
		h.waiting = h.waiting[1:]
		h.mu.Unlock()
		h.send(first)
	}
}

// send sends one, if the peer's was not answered in its place.
func (h *held) send(one heldOne) {
	one.shake.held.Store(false)
	if one.to.newest.Load() == one.shake {
		h.bind.carry([][]byte{one.shake.packet}, one.to)
	}
}

func (h *held) drop() {
	h.mu.Lock()
	h.waiting = nil
	h.mu.Unlock()
}
