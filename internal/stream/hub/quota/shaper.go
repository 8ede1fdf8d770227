// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"sync"
	"sync/atomic"
	"time"
)

// shaper holds the streams of an account to a rate of bytes. A stream pays for the bytes it
// has moved before it moves more: from a bucket that fills with time, or, when that is
// empty, by waiting in line.
//
//	            small, or the bucket has something
//	pay(n) ──────────────────────────────────────► continues
//	  └──► the line ──its turn: shapeTurn──┬─► all paid: continues
//	          ▲                                  └─► not all: to the end of the line
//	          └──────────────────────────────────────┘
//
// So streams that move much have equal shares, and one that moves little does not
// wait for them. Nothing is dropped, and no buffer is held beside those that the
// streams' windows bound.
type shaper struct {
	on      atomic.Bool // the rate is bounded
	stalled func()      // counts that somebody has to wait

	mu     sync.Mutex
	rate   float64 // bytes a second
	filled float64 // of the bucket: at most a second's worth, below 0 what was drawn in advance
	at     time.Time
	line   []*debt // who waits, the first one first
	timer  *time.Timer
	moved  perSecond
}

// debt is what a stream owes in one direction.
type debt struct {
	owed int64
	paid chan struct{} // closed when nothing is owed any more
}

func newShaper(stalled func()) *shaper { return &shaper{stalled: stalled} }

// setRate puts another rate into force, also for streams that wait.
func (s *shaper) setRate(each int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if each == Unbounded {
		s.on.Store(false)
		for _, d := range s.line {
			close(d.paid)
		}
		s.line, s.rate = nil, 0
		return
	}
	now := time.Now()
	if !s.on.Load() {
		s.filled = float64(each)
	} else {
		s.fillLocked(now)
		s.filled = max(min(s.filled, float64(each)), -float64(each)) // what was drawn at another rate is paid within a second
	}
	s.rate, s.at = float64(each), now
	s.on.Store(true)
	s.serveLocked(now)
}

// fillLocked lets the bucket fill until now.
func (s *shaper) fillLocked(now time.Time) {
	if since := now.Sub(s.at); since > 0 {
		s.filled = min(s.filled+since.Seconds()*s.rate, s.rate)
		s.at = now
	}
}

// open says that bytes may move now without anybody being kept waiting.
func (s *shaper) open() bool {
	if !s.on.Load() {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fillLocked(time.Now())
	return s.filled > 0 && len(s.line) == 0
}

// pay takes n bytes that have moved from the rate. If there is nothing for them,
// they are owed: the debt says when it is paid.
func (s *shaper) pay(n int64, recent *pace) *debt {
	if !s.on.Load() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.on.Load() {
		return nil
	}
	now := time.Now()
	s.fillLocked(now)
	s.moved.add(now, n)
	small := recent.small(now, n, int64(s.rate/8)) && s.filled > -s.rate*shapeAhead.Seconds()
	if small || s.filled > 0 && len(s.line) == 0 {
		s.filled -= float64(n)
		return nil
	}
	d := &debt{owed: n, paid: make(chan struct{})}
	s.line = append(s.line, d)
	s.stalled()
	s.serveLocked(now)
	return d
}

// charge takes n bytes from the rate whatever there is; the next ones wait.
func (s *shaper) charge(n int64, recent *pace) {
	if !s.on.Load() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.fillLocked(now)
	s.moved.add(now, n)
	recent.small(now, n, 0)
	s.filled -= float64(n)
}

// assume takes a debt out of the line because its stream has ended. The bucket pays for it,
// or short streams would have no rate at all.
func (s *shaper) assume(d *debt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, other := range s.line {
		if other == d {
			s.line = append(s.line[:i], s.line[i+1:]...)
			s.filled -= float64(d.owed)
			return
		}
	}
}

// serveLocked gives turns as long as there is something in the bucket.
func (s *shaper) serveLocked(now time.Time) {
	s.fillLocked(now)
	for len(s.line) > 0 && s.filled > 0 {
		d := s.line[0]
		turn := min(d.owed, shapeTurn)
		s.filled -= float64(turn)
		d.owed -= turn
		s.line = s.line[1:]
		if d.owed > 0 {
			s.line = append(s.line, d)
		} else {
			close(d.paid)
		}
	}
	if len(s.line) == 0 {
		s.line = nil // with what it had grown to
		return
	}
	// A millisecond more than it takes, so that a turn is worth waking up for.
	wait := time.Duration(-s.filled/s.rate*float64(time.Second)) + time.Millisecond
	if s.timer == nil {
		s.timer = time.AfterFunc(wait, s.wake)
	} else {
		s.timer.Reset(wait)
	}
}

func (s *shaper) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.on.Load() {
		s.serveLocked(time.Now())
	}
}

// used is what moved in the last full second, and how many streams wait.
func (s *shaper) used() (each int64, waiting int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.moved.last(time.Now()), len(s.line)
}

// pace tells streams that move little from those that move much. It belongs to one direction
// of one stream and is used under the lock of a shaper.
type pace struct {
	since time.Time
	moved int64
}

// small counts n bytes, and says whether they and what moved in the second before
// are few enough to go ahead.
func (p *pace) small(now time.Time, n, most int64) bool {
	if now.Sub(p.since) >= time.Second {
		p.since, p.moved = now, 0
	}
	p.moved += n
	return p.moved <= min(most, shapeSmall)
}

// perSecond counts by the second.
type perSecond struct {
	mu           sync.Mutex
	second       int64
	this, before int64
}

func (m *perSecond) add(now time.Time, n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.turnLocked(now)
	m.this += n
}

// last is what was counted in the last full second.
func (m *perSecond) last(now time.Time) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.turnLocked(now)
	return m.before
}

// turnLocked begins another second, if it is time.
func (m *perSecond) turnLocked(now time.Time) {
	switch s := now.Unix(); {
	case s == m.second+1:
		m.second, m.this, m.before = s, 0, m.this
	case s != m.second:
		m.second, m.this, m.before = s, 0, 0
	}
}
