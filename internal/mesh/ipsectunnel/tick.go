// SPDX-License-Identifier: Apache-2.0

package ipsectunnel

import (
	"cmp"
	"slices"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
)

// tick does what is due for all peers, and says how long nothing is.
func (e *Engine) tick() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	var next time.Time
	moved := e.stale
	for _, p := range e.peers {
		due, m := e.stepLocked(now, p)
		moved = moved || m
		if !due.IsZero() && (next.IsZero() || due.Before(next)) {
			next = due
		}
	}
	e.beginDueLocked(now)
	if moved {
		if err := e.policiesLocked(); err != nil {
			e.log.Warn("the kernel refuses policies of IPsec: what they are about is dropped", telemetry.AttrReason, err)
			return limit.WireGuardLook
		}
	}
	if next.IsZero() {
		return -1
	}
	return max(0, time.Until(next))
}

// beginDueLocked begins the exchanges that are due, as many as there may be. Another one ends before long, and then it
// is decided again.
func (e *Engine) beginDueLocked(now time.Time) {
	if e.work == nil {
		return
	}
	var due []*peer
	for _, p := range e.peers {
		if p.due != "" {
			due = append(due, p)
		}
	}
	slices.SortFunc(due, func(a, b *peer) int { return a.tried.Compare(b.tried) })
	for _, p := range due[:min(len(due), max(0, mostBegun-e.begun))] {
		e.beginLocked(now, p, p.due)
	}
}

// stepLocked does what is due for a peer but for an exchange, which it notes, and reports whether it sends by another
// line.
func (e *Engine) stepLocked(now time.Time, p *peer) (due time.Time, moved bool) {
	p.early = byte(p.id) // which nobody can choose
	v := e.parts.Limits.decide(now, p.situation)
	if raw := e.mayRaw(p.line) && p.trial.passes(now, p.line.Raw, p.usesRaw(v.send)); raw != p.line.Raw {
		if !raw && !now.Before(p.trial.until) { // an answer that comes now changes nothing
			p.trial = p.trial.rest(now, cmp.Or(p.trial.ended(now), "the peer has gone back to UDP"))
		}
		p.line.Raw, p.since, p.failed = raw, now, 0
		if p.cancel != nil { // it is about the other one
			p.cancel()
		}
		v = e.parts.Limits.decide(now, p.situation)
	}
	sends := p.leftLine
	if v.send >= 0 { // also without a path: its kernel may work on while the peer's program is away
		sends = p.held[v.send].line
	}
	if sends != p.sends {
		p.sends, moved = sends, true
	}
	p.due = v.begin
	if !p.leftEnds.IsZero() {
		if now.Before(p.leftEnds) {
			v.sooner(p.leftEnds)
		} else {
			e.dropLeftLocked(p)
		}
	}
	for _, i := range slices.Backward(v.drop) {
		if err := e.removeLocked(p.held[i]); err != nil {
			e.log.Warn("a state of IPsec stays", telemetry.AttrReason, err)
		}
		p.held = slices.Delete(p.held, i, i+1)
	}
	return v.next, moved
}

// dropLeftLocked takes away what an earlier run has left.
func (e *Engine) dropLeftLocked(p *peer) {
	for _, s := range p.left {
		if err := e.parts.Kernel.Remove(s.Name); err != nil {
			e.log.Warn("a state of IPsec stays", telemetry.AttrReason, err)
		}
		delete(e.spis, s.SPI)
	}
	p.left, p.leftLine, p.leftEnds = nil, Line{}, time.Time{}
}
