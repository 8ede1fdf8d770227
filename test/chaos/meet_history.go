// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"sort"
	"sync"
	"time"
)

// deed is what a member did at a discovery service, or tried to.
type deed struct {
	who        string // cluster and member
	seq        uint64 // of what it says; grows with each new content
	leave      bool   // it removed itself
	ttl        time.Duration
	sent, done time.Time
	acked      bool // the service said so; otherwise it may have happened, until done
}

// sight is one message that a watcher read: whom it shows, and who is gone. The
// first of a stream is all, and whoever is not in it is not there.
type sight struct {
	stream int
	of     string    // the cluster
	opened time.Time // the stream
	at     time.Time
	all    bool
	sure   bool // with all: the service knows who is not there
	here   map[string]uint64
	gone   []string
}

// outage is a time without the service. One that was killed may have forgotten
// what came after its last snapshot: after saved, if that is known.
type outage struct {
	at     time.Time
	killed bool
	saved  time.Time
}

// forgets says whether the outage may have cost what was done at a time.
func (o outage) forgets(d deed) bool { return o.killed && !d.done.Before(o.saved) }

// chronicle holds what all did and saw.
type chronicle struct {
	mu      sync.Mutex
	deeds   map[string][]deed // of each member, one after the other
	sights  []sight
	outages []outage
	wrong   []string
	streams int
}

func (c *chronicle) did(d deed) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deeds[d.who] = append(c.deeds[d.who], d)
}

func (c *chronicle) saw(s sight) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sights = append(c.sights, s)
}

func (c *chronicle) outage(killed bool, saved time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.outages = append(c.outages, outage{time.Now(), killed, saved})
}

func (c *chronicle) bad(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wrong = append(c.wrong, fmt.Sprintf(format, args...))
}

// stream numbers the streams of all watchers.
func (c *chronicle) stream() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.streams++
	return c.streams
}

// period is a time in which a member certainly lives.
type period struct{ from, to time.Time }

// until is when the certain life by a put ends: with its lease, as if the service
// had taken it the moment it was sent, or when the member leaves, or when the
// service is killed.
func until(p deed, later []deed, outages []outage) time.Time {
	end := p.sent.Add(p.ttl)
	for _, d := range later {
		if d.sent.After(end) {
			break
		}
		if d.leave {
			end = d.sent
			break
		}
	}
	for _, o := range outages {
		if o.forgets(p) && !o.at.Before(p.sent) && o.at.Before(end) {
			end = o.at
		}
	}
	return end
}

// alive is when a member certainly lives, in order and without overlap.
func alive(deeds []deed, outages []outage) (out []period) {
	for i, p := range deeds {
		if p.leave || !p.acked {
			continue
		}
		one := period{p.done, until(p, deeds[i+1:], outages)}
		if !one.to.After(one.from) {
			continue
		}
		if n := len(out); n > 0 && !one.from.After(out[n-1].to) {
			if one.to.After(out[n-1].to) {
				out[n-1].to = one.to
			}
			continue
		}
		out = append(out, one)
	}
	return out
}

// covered says whether a member certainly lives at every moment from one to
// another; known is until when that is known already.
func covered(periods []period, known, to time.Time) bool {
	i := sort.Search(len(periods), func(i int) bool { return periods[i].to.After(known) })
	if i < len(periods) && !periods[i].from.After(known) {
		known = periods[i].to
	}
	return known.After(to)
}

// distance is how far the services may be from each other. One service alone has
// none: who had an answer is seen by everybody.
type distance struct {
	lag   time.Duration // until every service knows what one of them has taken
	slack time.Duration // by which leases may end out of their order
	blind []period      // when one of them may have been cut off, and shows what it knew
}

// known is the moment of which a service certainly shows everything at a time.
func (d distance) known(at time.Time) time.Time {
	at = at.Add(-d.lag)
	for _, p := range d.blind {
		if !at.Before(p.from) && !at.After(p.to) {
			at = p.from.Add(-d.lag)
		}
	}
	return at
}

// sees says whether no service may have been cut off a moment ago.
func (d distance) sees(at time.Time) bool {
	for _, p := range d.blind {
		if !at.Before(p.from) && !at.After(p.to.Add(d.lag)) {
			return false
		}
	}
	return true
}

// meetingFindings is what is wrong with a chronicle. The numbers count what was
// looked at, so that it shows when that was nothing.
type meetingFindings struct {
	vanished []string // a member is said to be gone while its lease lives
	stayed   []string // a member is there when one whose lease ended later is gone
	skipped  []string // a later word was told, and one before it was not
	back     []string // a version before the one that was seen on the same stream
	invented []string // nobody said that

	absences, ends, versions, orders int
}

// past is what members did, and when they certainly lived by it.
type past struct {
	deeds   map[string][]deed
	lives   map[string][]period
	outages []outage
	distance
}

// judgeMeeting is the check of the chronicle: pure.
func judgeMeeting(deeds map[string][]deed, sights []sight, outages []outage, far distance) (f meetingFindings) {
	p := past{deeds, make(map[string][]period, len(deeds)), outages, far}
	for who, all := range deeds {
		p.lives[who] = alive(all, outages)
	}
	type stream struct {
		view map[string]uint64
		most map[string]uint64
		due  time.Time // what was taken before that must have been told with the next message
	}
	streams := map[int]*stream{}
	for _, s := range sights {
		st := streams[s.stream]
		if st == nil {
			st = &stream{view: map[string]uint64{}, most: map[string]uint64{}}
			streams[s.stream] = st
		}
		next := st.due
		if s.all {
			st.due = s.opened
		}
		for who, seq := range s.here {
			f.versions++
			if i, ok := said(deeds[who], seq); ok {
				next = later(next, deeds[who][i].sent)
			} else {
				f.invented = append(f.invented, fmt.Sprintf("%s with %d on stream %d", who, seq, s.stream))
			}
			if seq < st.most[who] {
				f.back = append(f.back, fmt.Sprintf("%s from %d to %d on stream %d", who, st.most[who], seq, s.stream))
			}
			st.view[who], st.most[who] = seq, max(seq, st.most[who])
		}
		last := map[string]uint64{}
		for _, who := range s.gone {
			if seq, ok := st.view[who]; ok {
				last[who] = seq
				delete(st.view, who)
			}
		}
		for who, seq := range last {
			f.gone(s, who, seq, p)
			f.outlived(s, who, seq, st.view, p)
		}
		if s.all && s.sure {
			f.absent(s, p)
		}
		f.order(s, p.known(st.due), st.view, p)
		st.due = later(st.due, next)
	}
	return f
}

// absent looks for those whom a whole cluster lacks although they live since
// before it was asked for.
func (f *meetingFindings) absent(s sight, p past) {
	for who := range p.deeds {
		if _, ok := s.here[who]; ok || clusterOf(who) != s.of {
			continue
		}
		f.absences++
		if covered(p.lives[who], p.known(s.opened), s.at) {
			f.vanished = append(f.vanished, fmt.Sprintf("%s is not in the whole cluster on stream %d", who, s.stream))
		}
	}
}

// gone looks whether a member may be gone: it was seen with what it said, so that
// it was there from then on.
func (f *meetingFindings) gone(s sight, who string, seq uint64, p past) {
	f.absences++
	i, ok := said(p.deeds[who], seq)
	if !ok {
		return
	}
	word := p.deeds[who][i]
	if covered(p.lives[who], until(word, p.deeds[who][i+1:], p.outages), s.at) {
		f.vanished = append(f.vanished, fmt.Sprintf("%s, seen with %d, is gone on stream %d", who, seq, s.stream))
	}
}

// outlived looks whether others are there whose leases ended before that of one
// that is gone: leases end in their order, whatever the time is.
func (f *meetingFindings) outlived(s sight, who string, seq uint64, view map[string]uint64, p past) {
	i, ok := said(p.deeds[who], seq)
	if !ok || !p.sees(s.at) {
		return
	}
	word := p.deeds[who][i]
	for _, d := range p.deeds[who][i+1:] {
		if d.leave && !d.sent.After(s.at) {
			return // it left, perhaps: that says nothing of leases
		}
	}
	for other := range view {
		end, ok := latest(p.deeds[other], s.at, p.outages)
		if !ok {
			continue
		}
		f.ends++
		if end.Add(p.slack).Before(word.sent.Add(word.ttl)) {
			f.stayed = append(f.stayed, fmt.Sprintf("%s, when %s is gone, on stream %d", other, who, s.stream))
		}
	}
}

// order looks whether the view lacks what was taken before a moment from which
// something was told already: changes are told in their order. It looks one message
// later, as a moment may be told in two: who is there, and who is gone.
func (f *meetingFindings) order(s sight, due time.Time, view map[string]uint64, p past) {
	forgotten := func(d deed) bool {
		return slices.ContainsFunc(p.outages, func(o outage) bool { return o.forgets(d) && !o.at.After(s.at) && !d.sent.After(o.at) })
	}
	for who, all := range p.deeds {
		i := sort.Search(len(all), func(i int) bool { return !all[i].done.Before(due) }) - 1
		for i >= 0 && !all[i].acked {
			i--
		}
		if clusterOf(who) != s.of || i < 0 || forgotten(all[i]) {
			continue
		}
		f.orders++
		seq, there := view[who]
		again := i+1 < len(all) && !all[i+1].sent.After(s.at)
		switch {
		case there && seq < all[i].seq && !(all[i].leave && again),
			!there && !s.all && covered(p.lives[who], due, s.at):
			f.skipped = append(f.skipped, fmt.Sprintf("%s with %d on stream %d, which has %d", who, all[i].seq, s.stream, seq))
		}
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// latest is the latest moment at which a member's lease can end by what it did
// before a time; not ok: a restart since then has moved it.
func latest(deeds []deed, before time.Time, outages []outage) (end time.Time, ok bool) {
	from := before
	for _, d := range deeds {
		if d.sent.After(before) {
			break
		}
		if !d.leave && d.done.Add(d.ttl).After(end) {
			end, from = d.done.Add(d.ttl), d.sent
		}
	}
	for _, o := range outages {
		if !o.at.Before(from) && !o.at.After(before) {
			return end, false
		}
	}
	return end, !end.IsZero()
}

// said is the first deed with which a member said something.
func said(deeds []deed, seq uint64) (int, bool) {
	i := sort.Search(len(deeds), func(i int) bool { return deeds[i].seq >= seq })
	return i, i < len(deeds) && deeds[i].seq == seq && !deeds[i].leave
}
