// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"bytes"
	"encoding/binary"
	"slices"
	"sync"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/run"
)

// held are handshakes that wait for a moment before they are sent, and are dropped when we answer
// one of the peer meanwhile.
//
// WireGuard answers in one goroutine and begins in another one. Where both are at work at once there
// may be an answer and a handshake for the same peer, of which WireGuard knows the answer alone.
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
	waiting []heldOne // the first one is due first
}

type heldOne struct {
	to    *endpoint
	shake *handshake
	due   time.Time
}

func newHeld(b *Bind) *held {
	h := &held{bind: b}
	h.alarm = run.NewAlarm(h.ring)
	return h
}

// yields is for how long a peer may go first.
func (b *Bind) yields(e *endpoint, now time.Time) time.Duration {
	own := b.public.Load()
	switch {
	case own != nil && !e.probes.Load() && bytes.Compare(own[:], e.key[:]) < 0:
		return limit.TunnelHold
	case b.crossing.beside(now):
		return limit.TunnelBeside
	}
	return 0
}

// put has a handshake with a peer wait.
func (h *held) put(e *endpoint, shake *handshake, wait time.Duration) {
	shake.held.Store(true)
	h.mu.Lock()
	if len(h.waiting) >= limit.TunnelHeld { // the one that waited longest waits no more
		first := h.waiting[0]
		h.waiting = h.waiting[1:]
		defer h.send(first)
	}
	due := shake.at.Add(wait)
	at := len(h.waiting)
	for at > 0 && h.waiting[at-1].due.After(due) {
		at--
	}
	h.waiting = slices.Insert(h.waiting, at, heldOne{e, shake, due})
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
		if left := time.Until(first.due); left > 0 {
			h.mu.Unlock()
			return left
		}
		h.waiting = h.waiting[1:]
		h.mu.Unlock()
		h.send(first)
	}
}

// send sends one, if the peer's was not answered in its place. What another device has begun with
// the peer meanwhile takes no place of it.
func (h *held) send(one heldOne) {
	one.shake.held.Store(false)
	if newest := one.to.newest.Load(); newest == one.shake || newest.bind != one.shake.bind {
		h.bind.carry([][]byte{one.shake.packet}, one.to)
	}
}

// answered drops what waits of a peer that WireGuard knows by the address at which it was heard
// alone: its own handshake says to whom an answer goes.
func (h *held) answered(packets [][]byte) {
	if len(packets) != 1 || len(packets[0]) != sizeResponse || packets[0][0] != typeResponse {
		return
	}
	to := binary.LittleEndian.Uint32(packets[0][8:])
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waiting = slices.DeleteFunc(h.waiting, func(one heldOne) bool { return to != 0 && one.shake.rival.Load() == to })
}

func (h *held) drop() {
	h.mu.Lock()
	h.waiting = nil
	h.mu.Unlock()
}
