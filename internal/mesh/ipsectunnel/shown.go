// SPDX-License-Identifier: Apache-2.0

package ipsectunnel

import (
	"slices"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel/ipsec"
)

// Shown is a tunnel as people see it. Its keys are in the kernels of both nodes alone.
type Shown struct {
	Line
	Number  uint32 // of the peer, in policies and states (reqid)
	In, Out uint32 // SPIs; Out is 0 of one by which nothing is sent any more
	Cipher  ipsec.Cipher
	Own     bool // this node has begun it
	Sends   bool // packets go by it
	Made    time.Time
	Ends    time.Time // when it goes, since another one has taken its place; zero: none has
	Sent    uint64    // packets, as of the last look
	Got     uint64
}

// State is how it is with a peer.
type State struct {
	Tunnels []Shown // oldest first, without what an earlier run has left
	Raw     bool    // packets go without UDP
	Why     string  // and why, or why not; empty: there is no path
	// Fault is why no new keys are agreed, if the last exchange that this node has begun failed. Until is when the keys
	// end by which packets go meanwhile; zero: none go.
	Fault error
	Until time.Time
}

// Use is what was sent and received by all tunnels, as of the last look.
type Use struct {
	Sent, Received uint64 // packets
	// Sequence is the highest sequence number of a tunnel by which packets go. Numbers begin at 1 with each tunnel, and
	// new keys come long before they end (Limits).
	Sequence uint64
	// Trials are packets that came to try protocol 50, from anybody. The kernel counts each as one without a state.
	Trials uint64
}

// Use is that of this engine's life.
func (e *Engine) Use() Use {
	e.mu.Lock()
	defer e.mu.Unlock()
	u := Use{Sent: e.use[0], Received: e.use[1], Trials: e.heard50}
	for _, p := range e.peers {
		for i := range p.held {
			if h := &p.held[i]; h.Out != 0 && h.ends.IsZero() {
				u.Sequence = max(u.Sequence, h.use.packets)
			}
		}
	}
	return u
}

// Peers are the states of all peers.
func (e *Engine) Peers() map[member.Key]State {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := make(map[member.Key]State, len(e.peers))
	for k, p := range e.peers {
		var s State
		s.Until, s.Fault = e.failureLocked(time.Now(), p)
		s.Raw, s.Why = e.wayLocked(time.Now(), p)
		for i := range p.held {
			h := &p.held[i]
			s.Tunnels = append(s.Tunnels, Shown{Line: h.line, Number: p.id, In: h.In, Out: h.Out, Cipher: h.cipher,
				Own: h.own, Made: h.made, Ends: h.ends, Sent: h.use.packets, Got: h.got.packets,
				Sends: h.Out != 0 && h.line == p.sends && h.ends.IsZero()})
		}
		out[k] = s
	}
	return out
}

// failureLocked is why there are no new keys, and until when the present ones last.
func (e *Engine) failureLocked(now time.Time, p *peer) (until time.Time, why error) {
	if p.sends.IsZero() {
		return time.Time{}, p.fault
	}
	made := e.agreedLocked(now, p)
	if p.failed == 0 || made.IsZero() || p.tried.Before(made) { // it failed by another path, or the peer has agreed some
		return time.Time{}, nil
	}
	return made.Add(e.parts.Limits.HardAge), p.fault
}

// agreedLocked is when the keys were agreed by which packets go to a peer; zero: none go.
func (e *Engine) agreedLocked(now time.Time, p *peer) time.Time {
	if v := e.parts.Limits.decide(now, p.situation); v.send >= 0 {
		return p.held[v.send].made
	}
	if i := slices.IndexFunc(p.left, func(s ipsec.Seen) bool { return s.Sends }); i >= 0 && !p.sends.IsZero() {
		return p.left[i].Made // the newest comes first
	}
	return time.Time{}
}
