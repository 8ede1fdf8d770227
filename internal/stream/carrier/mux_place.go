// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"sync/atomic"
	"time"
)

// place is what is known of a connection when a stream's direction is placed.
type place struct {
	bulk    int  // bulk directions of ours that travel on it
	leaving bool // takes no more
}

// choose says on which of the connections (the oldest first) a direction shall
// travel that travels on at (-1: on none that lives). Interactive ones belong to
// the oldest. Bulk ones go where the fewest are: to any while nothing interactive
// happens, otherwise to one of the beside next ones. The oldest counts as if it had
// one more, for what is interactive always begins there. They move only if that is
// better by two, so that they do not wander.
func choose(places []place, at int, bulk, quiet bool, beside int) int {
	first := -1
	for i, p := range places {
		if !p.leaving {
			first = i
			break
		}
	}
	if first < 0 || !bulk {
		return first
	}
	load := func(i int) int {
		if i == first {
			return places[i].bulk + 1
		}
		return places[i].bulk
	}
	best, may := -1, false // may says that at is one of those
	for i, p := range places {
		if p.leaving || i == first && !quiet {
			continue
		}
		if i != first {
			beside--
		}
		if !quiet && beside < 0 {
			break
		}
		may = may || i == at
		if best < 0 || load(i) < load(best) {
			best = i
		}
	}
	switch {
	case best < 0:
		return first
	case !may, load(at)-load(best) >= 2:
		return best
	}
	return at
}

// wanted is how many connections a session with so many bulk directions should
// have, most at most: one for what is interactive, and one for each bulk one.
func wanted(bulk, most int) int { return max(1, min(1+bulk, most)) }

// activity tells whether something interactive happens: more than a heartbeat in
// this second and the one before.
type activity struct{ second, count, before atomic.Int64 }

const heartbeatFrames = 3

func (a *activity) note(now time.Duration) {
	if sec := int64(now / time.Second); sec != a.second.Load() {
		if old := a.second.Swap(sec); old == sec-1 {
			a.before.Store(a.count.Swap(0))
		} else if old != sec {
			a.before.Store(0)
			a.count.Store(0)
		}
	}
	a.count.Add(1)
}

func (a *activity) quiet(now time.Duration) bool {
	sec, at := int64(now/time.Second), a.second.Load()
	switch {
	case at == sec:
		return a.count.Load() <= heartbeatFrames && a.before.Load() <= heartbeatFrames
	case at == sec-1:
		return a.count.Load() <= heartbeatFrames
	}
	return true
}
