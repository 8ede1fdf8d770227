// SPDX-License-Identifier: Apache-2.0

package konnectivity

import "time"

// A tunnel waits for a connection whose queue is full, and all others on it wait too: that makes a download as slow as
// its reader, and nothing else on the wire does. So the time of it says nothing about a reader, for one that takes
// 10 MB a second is waited for all the time. What tells readers apart is how far one is behind a pace while its tunnel
// waits: the time that the tunnel has waited, less what it takes to read at that pace what was taken.
//
//	queue full ── the tunnel waits: behind grows ──► patience is used up ──► reset
//	                  └ what is taken: behind shrinks, and there may be room ──► queued

// behind is how far a reader is behind who was so far behind before, after the tunnel has waited and bytes were taken.
// It is never ahead: what was taken once pays for no later wait. A machine that stands still does not bring it further
// than what is borne.
func behind(before, waited time.Duration, taken int64) time.Duration {
	paid := time.Duration(float64(taken) / konnectivityPace * float64(time.Second))
	return min(max(0, before+waited-paid), konnectivityPatience)
}

// patience is how long a tunnel waits for a reader that is so far behind, where the others of the tunnel are so far
// behind in all; it may be below 0. Whoever is hardly behind does not pay for others.
func patience(own, others time.Duration) time.Duration {
	return min(max(konnectivityPatienceLeast, konnectivityPatienceAll-others), konnectivityPatience) - own
}

// forgiven is how far the readers of a tunnel are behind in all some time later: connections that have ended are
// remembered for a while.
func forgiven(all, later time.Duration) time.Duration { return max(0, all-later/konnectivityForgives) }

// lateness is how far the readers of a tunnel are behind in all.
type lateness struct {
	all  time.Duration
	when time.Time // of that
}

// add counts that a reader was so far behind, and is now.
func (l *lateness) add(before, after time.Duration, now time.Time) {
	l.all = max(0, forgiven(l.all, now.Sub(l.when))+after-before)
	l.when = now
}

// lags is called before the tunnel waits for a flow, and after it has waited for some time, of which a tick counts at
// most. It says how much longer the tunnel may; it is receive's alone.
func (f *flow) lags(waited time.Duration, now time.Time) (left time.Duration) {
	f.mu.Lock()
	taken := f.took
	f.took = 0
	f.mu.Unlock()
	before := f.behind
	f.behind = behind(before, min(waited, konnectivityTick), taken)
	late := &f.link.late
	late.add(before, f.behind, now)
	return patience(f.behind, late.all-f.behind)
}
