// SPDX-License-Identifier: Apache-2.0

package run

import (
	"sync"
	"sync/atomic"
	"time"
)

// Alarm calls a function at the times that the function itself names, and
// whenever it is rung. There is a goroutine only while the function runs: ten
// thousand that wait cost ten thousand timers. What is due at once has no timer:
// in a bubble of testing/synctest several that fire within their own Reset bring
// down the race detector (golang/go#78156).
type Alarm struct {
	fn    func() (next time.Duration)
	timer *time.Timer
	live  atomic.Bool
	rung  atomic.Bool
	turn  sync.Mutex // held while fn runs
}

// NewAlarm makes an alarm, which Start sets going. fn is never called twice at a
// time; below 0 it names no next time.
func NewAlarm(fn func() (next time.Duration)) *Alarm {
	a := &Alarm{fn: fn}
	a.timer = time.AfterFunc(time.Hour, a.run)
	a.timer.Stop()
	return a
}

// Start has fn called soon. Stop must follow.
func (a *Alarm) Start() {
	a.live.Store(true)
	a.rung.Store(true)
	go a.run()
}

// Ring has fn called soon, and once more if it runs just now; not before Start,
// nor after Stop.
func (a *Alarm) Ring() {
	if !a.rung.Swap(true) && a.live.Load() { // else somebody is about to look
		go a.run()
	}
}

// Stop waits for fn, which is not called any more. fn must not call it.
func (a *Alarm) Stop() {
	a.turn.Lock()
	defer a.turn.Unlock()
	a.live.Store(false)
	a.timer.Stop()
}

func (a *Alarm) run() {
	for a.turn.TryLock() { // else who has the turn finds that it was rung
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
