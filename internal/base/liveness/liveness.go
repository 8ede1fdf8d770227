// SPDX-License-Identifier: Apache-2.0

// Package liveness decides from times alone whether a session needs a ping or
// is dead. It reads no clock and sends nothing.
package liveness

import (
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// Facts is what is known of a session.
//
//	        begin or a byte received
//	idle:   |--10 s--ping--10 s--ping--10 s--| dead
//	live:   |-1 s-ping-1 s-ping-1 s-|          dead
//
// While bytes come nobody needs to ask for them, but for the round trip, every
// pingTrip. A session that becomes live is given the full live bound from
// then on: its last byte may rightly be old. Of a silence only that counts during
// which we listened: see Looks.
type Facts struct {
	LastReceived time.Time     // newest byte of the peer, or the begin
	LastPing     time.Time     // our newest ping, zero if none
	LiveSince    time.Time     // since when streams or dials are live; zero if idle
	Missed       time.Duration // of the silence; see Looks
}

// Step is what to do now, and when to ask again.
type Step struct {
	Ping bool
	Dead bool
	Wait time.Duration // until the next question, if nothing changes
}

// Next decides.
func Next(f Facts, now time.Time) Step {
	interval, bound, heard := limit.PingIdle, limit.DeadIdle, f.LastReceived
	if !f.LiveSince.IsZero() {
		interval, bound = limit.PingLive, limit.DeadLive
		if f.LiveSince.After(heard) {
			heard = f.LiveSince
		}
	}
	dead := heard.Add(bound + f.Missed)
	if !now.Before(dead) {
		return Step{Dead: true}
	}
	next := later(f.LastPing, heard).Add(interval)
	if trip := f.LastPing.Add(pingTrip); trip.Before(next) {
		next = trip
	}
	if !now.Before(next) {
		return Step{Ping: true, Wait: min(interval, dead.Sub(now))}
	}
	return Step{Wait: min(next.Sub(now), dead.Sub(now))}
}

// Looks knows how much of a silence we were not there ourselves: the machine stood
// still, or had no processor for us. A look that comes late shows it. What the peer
// sent meanwhile may lie in the kernel and be read in a moment, and what it did not
// send it may owe to the same machine; either way the silence says nothing of the link.
// The zero value is ready.
type Looks struct {
	due    time.Time // the next look, zero before the first
	heard  time.Time
	missed time.Duration
}

// Look says at each look how much of the silence since heard was missed.
func (l *Looks) Look(heard, now time.Time) time.Duration {
	if heard.After(l.heard) {
		l.heard, l.missed = heard, 0
	}
	if late := now.Sub(l.due); !l.due.IsZero() && late > 0 {
		l.missed += late
	}
	l.missed = max(0, min(l.missed, now.Sub(l.heard)))
	return l.missed
}

// Next notes when the next look is due.
func (l *Looks) Next(due time.Time) { l.due = due }

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
