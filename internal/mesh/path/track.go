// SPDX-License-Identifier: Apache-2.0

package path

import (
	"time"
)

// track is what is known about one path.
type track struct {
	kind     Kind
	near     bool
	since    time.Time // a candidate
	heard    time.Time // the newest ping of the peer by it
	answered time.Time // the newest answer
	absent   time.Time // of a relay: when the hub said that the peer is not there
	better   time.Time // since when it is better than the one in use
	trip     time.Duration
	sent     int
	answers  int
	missed   int // pings in a row without an answer
	next     time.Time
	open     []ping
	size     sizing
}

type ping struct {
	id   uint64
	at   time.Time
	size int // 0: the smallest
}

// pingNow makes the path due for a ping.
func (t *track) pingNow(now time.Time) {
	if t.next.After(now) || t.next.IsZero() {
		t.next = now
	}
}

// within makes the path due for a ping after d at the latest.
func (t *track) within(now time.Time, d time.Duration) {
	if at := now.Add(d); t.next.After(at) {
		t.next = at
	}
}

// alive reports whether packets can be sent on it: it answered lately, and misses no more pings
// than get lost normally.
func (t *track) alive(now time.Time, keep time.Duration) bool {
	return recent(t.answered, now, keep) && t.missed < pathMissed
}

// worth orders heard paths by what would be lost with them.
func (t *track) worth(o *track) int {
	if t.answered.IsZero() != o.answered.IsZero() {
		if t.answered.IsZero() {
			return -1
		}
		return 1
	}
	return t.heard.Compare(o.heard)
}

// overdue drops pings without an answer in time, and returns how many of them count: a large one
// may be too large for the path, and proves nothing.
func (t *track) overdue(now time.Time) (n int) {
	kept := t.open[:0]
	for _, o := range t.open {
		switch {
		case now.Sub(o.at) < pathAnswer:
			kept = append(kept, o)
		case o.size > 0:
			t.size.failed(o.size)
		default:
			n++
		}
	}
	t.open = kept
	t.missed += n
	return n
}

// shift makes up for a time in which nobody listened.
func (t *track) shift(by time.Duration) {
	for i := range t.open {
		t.open[i].at = t.open[i].at.Add(by)
	}
}

// answer takes the answer to one of the open pings.
func (t *track) answer(now time.Time, id uint64) bool {
	for i, o := range t.open {
		if o.id != id {
			continue
		}
		t.open = append(t.open[:i:i], t.open[i+1:]...)
		t.missed, t.answered, t.absent = 0, now, time.Time{}
		t.answers++
		if o.size > 0 {
			t.size.passed(o.size)
		}
		trip := max(now.Sub(o.at), time.Microsecond)
		if t.trip == 0 {
			t.trip = trip
		}
		t.trip += (trip - t.trip) / 8 // RFC 6298 section 2, alpha
		return true
	}
	return false
}

// cost compares paths: the round trip, with a bonus for paths that stay within a network or need no
// address translation.
func (t *track) cost(w Path) time.Duration {
	c := t.trip
	if t.near {
		c = c * 7 / 10
	}
	if w.Addr.Addr().Is6() {
		c = c * 9 / 10
	}
	return c
}

// sizing finds the largest packet that passes on a path.
type sizing struct {
	passes int // the largest that was answered
	fails  int // the smallest that never was; 0: none
	tries  int // of the one that is tried
	at     time.Time
}

// sizes are the IP packet sizes to try: the minimum of IPv6, what remains of an Ethernet frame in
// one or two tunnels, a PPPoE line, Ethernet.
func sizes() []int { return []int{1280, 1380, 1420, 1480, 1492, 1500} }

// next is the size to try now; 0 if everything is known for a while.
func (s *sizing) next(now time.Time) int {
	if recent(s.at, now, pathSize) && s.found() {
		return 0
	}
	if s.found() { // it may be more by now, or less
		*s = sizing{}
	}
	for _, n := range sizes() {
		if n > s.passes {
			s.at = now
			return n
		}
	}
	return 0
}

func (s *sizing) found() bool {
	all := sizes()
	if s.fails > 0 {
		return true
	}
	return s.passes == all[len(all)-1]
}

func (s *sizing) passed(n int) {
	s.passes, s.tries = max(s.passes, n), 0
	if s.fails > 0 && s.fails <= n { // it was loss
		s.fails = 0
	}
}

func (s *sizing) failed(n int) {
	if n <= s.passes {
		return
	}
	if s.tries++; s.tries >= pathSizeTries {
		s.fails, s.tries = n, 0
	}
}
