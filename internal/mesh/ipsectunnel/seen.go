// SPDX-License-Identifier: Apache-2.0

package ipsectunnel

import (
	"bytes"
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel/ipsec"
	"github.com/tombolo-io/tombolo/internal/mesh/tunnel"
)

// seen is what was seen of a peer's traffic and exchanges.
type seen struct {
	handshake              time.Time // the newest exchange, by the wall clock
	shakes                 uint64
	asked                  time.Time // when the first one was begun since one was completed
	sentBytes, gotBytes    uint64
	sent, got              uint64 // packets
	lastSent, lastReceived time.Time
	watched                bool
}

func (s *seen) shook(now time.Time) {
	s.handshake, s.asked = now.Round(0), time.Time{}
	s.shakes++
}

func (s *seen) activity() tunnel.Activity {
	return tunnel.Activity{Sent: s.sent, Received: s.got, LastSent: s.lastSent, LastReceived: s.lastReceived,
		Asked: s.asked}
}

// grow notes what a state has done since it was looked at last.
func (u *usage) grow(is ipsec.Seen) (more usage) {
	more = usage{is.Bytes - min(is.Bytes, u.bytes), is.Packets - min(is.Packets, u.packets)}
	u.bytes, u.packets = is.Bytes, is.Packets
	return more
}

// watch looks at the kernel's states until ctx ends.
func (e *Engine) watch(ctx context.Context) {
	for {
		began := time.Now()
		e.mu.Lock()
		err := e.lookLocked()
		if err == nil {
			err = e.compareLocked(began)
		}
		e.mu.Unlock()
		if err != nil {
			e.log.Debug("the states or policies of IPsec are not read", telemetry.AttrReason, err)
		}
		// What many peers cost stays a small part of the time.
		if !run.Wait(ctx, max(limit.WireGuardLook, limit.WireGuardRest*time.Since(began))) {
			return
		}
	}
}

// lookLocked reads what the kernel reports about the states.
func (e *Engine) lookLocked() error {
	all, err := e.parts.Kernel.States()
	if err != nil {
		return err
	}
	now := time.Now()
	e.missLocked(now)
	counters := make(map[ipsec.Name]ipsec.Seen, len(all))
	for _, s := range all {
		counters[s.Name] = s
	}
	due := false
	for _, p := range e.peers {
		if e.dropTakenLocked(p, counters) {
			due, e.stale = true, true // with states policies may have gone
		}
		var sent, got usage
		for i := range p.held {
			h := &p.held[i]
			if s, there := counters[ipsec.Name{To: h.line.Local, SPI: h.In}]; there {
				more := h.got.grow(s)
				if got.add(more); h.line.Raw {
					p.trial.receives += more.packets
				}
			}
			if s, there := counters[ipsec.Name{To: h.line.Remote.Addr(), SPI: h.Out}]; there {
				more := h.use.grow(s)
				if sent.add(more); h.line.Raw {
					p.trial.sends += more.packets
				}
			}
		}
		if p.seen.note(now, sent, got) && p.seen.watched && e.parts.Wake != nil {
			p.seen.watched = false
			e.parts.Wake(p.key)
		}
		due = due || sent.packets > 0
		e.use[0], e.use[1] = e.use[0]+sent.packets, e.use[1]+got.packets
	}
	if due {
		e.alarm.Ring() // so much may have been sent that new keys are due
	}
	return nil
}

// compareLocked has the policies be set again if somebody else has removed or changed some: without them packets are
// dropped, and states say nothing of that.
func (e *Engine) compareLocked(now time.Time) error {
	if e.stale || e.own == (member.Key{}) || now.Before(e.read.Add(comparePolicies)) {
		return nil
	}
	e.read = now
	n, err := e.parts.Kernel.Differs(e.wantedLocked())
	if n > 0 {
		e.log.Warn("policies of IPsec were removed or changed by somebody else: they are set again", "policies", n)
		e.stale = true
		e.alarm.Ring()
	}
	return err
}

// dropTakenLocked drops the tunnels of which the kernel lacks a state: somebody has flushed them, or a hard limit has
// ended them. Another one takes their place.
func (e *Engine) dropTakenLocked(p *peer, there map[ipsec.Name]ipsec.Seen) (dropped bool) {
	has := func(to netip.Addr, spi uint32) bool {
		_, ok := there[ipsec.Name{To: to, SPI: spi}]
		return ok
	}
	p.held = slices.DeleteFunc(p.held, func(h held) bool {
		if has(h.line.Local, h.In) && (h.Out == 0 || has(h.line.Remote.Addr(), h.Out)) {
			return false
		}
		if err := e.removeLocked(h); err != nil {
			e.log.Debug("a state of IPsec is gone", telemetry.AttrNode, p.key.Short(), telemetry.AttrReason, err)
		}
		dropped = true
		return true
	})
	if dropped {
		e.log.Warn("states of IPsec were removed by somebody else, or have ended: new keys are agreed",
			telemetry.AttrNode, p.key.Short())
	}
	return dropped
}

// missLocked notes whether there is a link. One that was renamed gets its name back (package kernel does that).
func (e *Engine) missLocked(now time.Time) {
	switch {
	case e.parts.Link.There():
		e.missed = time.Time{}
	case e.missed.IsZero():
		e.missed = now
	case now.Sub(e.missed) >= limit.WireGuardGone && !e.lost:
		e.lost = true
		close(e.gone)
	}
}

func (u *usage) add(o usage) {
	u.bytes += o.bytes
	u.packets += o.packets
}

// note takes in what was sent and received, and reports whether there was anything.
func (s *seen) note(now time.Time, sent, got usage) bool {
	s.sentBytes, s.gotBytes = s.sentBytes+sent.bytes, s.gotBytes+got.bytes
	s.sent, s.got = s.sent+sent.packets, s.got+got.packets
	if sent.packets > 0 {
		s.lastSent = now
	}
	if got.packets > 0 {
		s.lastReceived = now
	}
	return sent.packets > 0 || got.packets > 0
}

// Watch has Wake called with the next packet to or from a peer that is seen.
func (e *Engine) Watch(k member.Key) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if p := e.peers[k]; p != nil {
		p.seen.watched = true
	}
}

// Activity is what was known of one peer at the last look.
func (e *Engine) Activity(k member.Key) (tunnel.Activity, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.peers[k]
	if p == nil {
		return tunnel.Activity{}, false
	}
	return p.seen.activity(), true
}

// Stats are those of all peers, by key.
func (e *Engine) Stats() ([]tunnel.Stat, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.lookLocked(); err != nil {
		return nil, err
	}
	out := make([]tunnel.Stat, 0, len(e.peers))
	for k, p := range e.peers {
		out = append(out, tunnel.Stat{Key: k, Handshake: p.seen.handshake, Shakes: p.seen.shakes, Sent: p.seen.sentBytes,
			Received: p.seen.gotBytes, Activity: p.seen.activity()})
	}
	slices.SortFunc(out, func(a, b tunnel.Stat) int { return bytes.Compare(a.Key[:], b.Key[:]) })
	return out, nil
}
