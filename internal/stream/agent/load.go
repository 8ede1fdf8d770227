// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"sync"
	"time"
)

// load tells one hub how many streams the agent has, often enough that picks are
// fair, without a frame for each stream.
type load struct {
	tell func(streams int64) // must not wait

	mu    sync.Mutex
	told  int64
	at    time.Time
	later *time.Timer // nil: nothing is to be told later
	ended bool
}

// changed tells the load, now or later, if that is due. It reads the load itself, under
// its lock: the last load sent is the newest.
func (l *load) changed(streams func() int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended || l.later != nil {
		return
	}
	now := time.Now()
	n := streams()
	wait, due := loadDue(n, l.told, now.Sub(l.at))
	switch {
	case due && wait > 0:
		l.later = time.AfterFunc(wait, func() {
			l.mu.Lock()
			l.later = nil
			l.mu.Unlock()
			l.changed(streams)
		})
	case due:
		l.told, l.at = n, now
		l.tell(n)
	}
}

func (l *load) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	if l.later != nil {
		l.later.Stop()
	}
}

// loadDue says whether a load is to be told, which is when it has moved by more than a
// fifth, and how long to wait, since the last one was told so long ago.
func loadDue(streams, told int64, since time.Duration) (wait time.Duration, due bool) {
	diff := max(streams-told, told-streams)
	return max(0, loadEvery-since), diff*5 > told && diff > 0
}
