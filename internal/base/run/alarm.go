// SPDX-License-Identifier: Apache-2.0

package run

import (
	"sync"
	"sync/atomic"
	"time"
)

// Alarm calls a function at the times that the function itself returns, and whenever it
// is rung. There is a goroutine only while the function runs: ten thousand waiting alarms
// cost ten thousand timers. A call that is due at once uses no timer: in a bubble of
// testing/synctest several timers that fire within their own Reset crash the race detector
// (golang/go#78156).
type Alarm struct {
	fn    func() (next time.Duration)
	timer *time.Timer
	live  atomic.Bool
	rung  atomic.Bool
	turn  sync.Mutex // held while fn runs
}

// NewAlarm makes an alarm; Start starts it. Calls of fn do not overlap. fn returns how
// long to wait until the next call; below 0 there is none.
func NewAlarm(fn func() (next time.Duration)) *Alarm {
	a := &Alarm{fn: fn}
	a.timer = time.AfterFunc(time.Hour, a.run)
	a.timer.Stop()
	return a
}

// Start makes the first call of fn. Stop must follow.
func (a *Alarm) Start() {
	a.live.Store(true)
	a.rung.Store(true)
	go a.run()
}

// Ring calls fn soon, and once more if it is running now. Before Start and after Stop it
// does nothing.
func (a *Alarm) Ring() {
	if !a.rung.Swap(true) && a.live.Load() { // otherwise a call is about to start
		go a.run()
	}
}

// Stop waits for a running fn; there are no calls after it. fn must not call Stop.
func (a *Alarm) Stop() {
	a.turn.Lock()
	defer a.turn.Unlock()
	a.live.Store(false)
	a.timer.Stop()
}

func (a *Alarm) run() {
	for a.turn.TryLock() { // otherwise the running call sees that it was rung
		if a.live.Load() {
			a.rung.Store(false)
			switch next := a.fn(); {
			case next > 0:
				a.timer.Reset(next)
			case next == 0:
				a.rung.Store(true)
			default:
				a.timer.Stop() // a ring leaves it as it was
			}
		}
		a.turn.Unlock()
		if !a.rung.Load() || !a.live.Load() {
			return
		}
	}
}
