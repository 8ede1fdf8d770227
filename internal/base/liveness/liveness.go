// SPDX-License-Identifier: Apache-2.0

// Package liveness decides from times alone whether a session needs a ping or
// is dead. It reads no clock and sends nothing.
package liveness

import (
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// Facts is what Next needs to know of a session.
//
//	        begin or a byte received
//	idle:   |--10 s--ping--10 s--ping--10 s--| dead
//	live:   |-1 s-ping-1 s-ping-1 s-|          dead
//
// While bytes arrive, pings only measure the round trip, every pingTrip. A session that
// becomes live gets the full live bound from then on: its last byte may be old for a
// good reason. Silence counts only while this process was listening: see Looks.
type Facts struct {
	LastReceived time.Time     // last byte of the peer, or the start
	LastPing     time.Time     // our last ping, zero if none
	LiveSince    time.Time     // since when streams or dials are live; zero if idle
	Missed       time.Duration // of the silence; see Looks
}

// Step is what to do now, and when to call Next again.
type Step struct {
	Ping bool
	Dead bool
	Wait time.Duration // until the next call, if nothing changes
}

// Next decides whether to ping or to end a session.
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

// Looks measures how much of a silence this process was not running itself: the machine
// slept, or was overloaded. A late look shows it. Bytes of the peer may wait in the kernel
// and be read in a moment, and a peer on the same machine could not send; either way the
// silence says nothing about the link. The zero value is ready to use.
type Looks struct {
	due    time.Time // the next look, zero before the first
	heard  time.Time
	missed time.Duration
}

// Look returns at each look how much of the silence since heard was missed.
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
