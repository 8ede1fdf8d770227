// SPDX-License-Identifier: Apache-2.0

package path

import (
	"cmp"
	"slices"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// seeking is the schedule of rounds while there is no direct path: each round pings all candidates,
// and calls the peer through the relay.
type seeking struct {
	began time.Time
	round int
	next  time.Time
}

func firstRounds() []time.Duration {
	const ms = time.Millisecond
	return []time.Duration{0, 250 * ms, 500 * ms, 1000 * ms, 2000 * ms, 4000 * ms}
}

func (s *seeking) restart(now time.Time) {
	if s.round <= 1 && recent(s.began, now, pathCalled) { // it has only just begun
		return
	}
	*s = seeking{began: now, next: now}
}

// step reports whether a round is due.
func (s *seeking) step(now time.Time) bool {
	if now.Before(s.next) {
		return false
	}
	s.round++
	first := firstRounds()
	switch {
	case s.round < len(first):
		s.next = s.began.Add(first[s.round])
		if !s.next.After(now) {
			s.next = now.Add(first[1])
		}
	case now.Sub(s.began) < pathSeekLong:
		s.next = now.Add(pathSeekOften)
	default:
		s.next = now.Add(pathSeek)
	}
	return true
}

// Pong takes the answer to a ping, received on the path on which the ping was sent, and reports
// whether there was such a ping.
func (p *Peer) Pong(now time.Time, w Path, id uint64) bool {
	t := p.paths[w]
	if t == nil || !t.answer(now, id) {
		return false
	}
	if at := now.Add(pathSpare); w != p.now && p.now.Direct() && t.next.After(at) { // it was hopeless
		t.next = at
	}
	p.choose(now)
	return true
}

// Next returns what to send now, and when to ask again if nothing happens before; the zero time:
// never.
func (p *Peer) Next(now time.Time) (sends []Send, due time.Time) {
	p.wake(now)
	if !p.facts.Probes {
		p.due = p.rotate(now)
		return nil, p.due
	}
	doubt := false
	for w, t := range p.paths {
		if t.overdue(now) > 0 && w == p.now { // without traffic the next ping would be far away
			t.pingNow(now)
			doubt = true
		}
	}
	if doubt {
		p.askOthers(now)
	}
	p.choose(now)
	if !p.isWanted(now) {
		p.due = time.Time{}
		return nil, p.due
	}
	if p.seekNow(now) {
		for _, w := range p.order() {
			if t := p.paths[w]; w.Direct() {
				t.next = now
			}
		}
		if w := p.relay(now); !w.IsZero() && p.calls(now) {
			p.called = now
			sends = append(sends, Send{To: w})
		}
	}
	for _, w := range p.order() {
		sends = append(sends, p.ping(now, w, p.paths[w])...)
	}
	p.due = p.nextDue(now)
	return sends, p.due
}

// wake makes up for a time in which this process did not run: missing answers from then say nothing
// about the paths.
func (p *Peer) wake(now time.Time) {
	late := now.Sub(p.due)
	if p.due.IsZero() || late < pathRetry/2 {
		return
	}
	for _, t := range p.paths {
		if late >= pathAnswer { // an answer by now would prove what was, not what is
			t.open = nil
			continue
		}
		t.shift(late)
	}
}

// Ask requests a ping on the path in use as soon as possible: there is something to tell the peer.
func (p *Peer) Ask(now time.Time) {
	if t := p.paths[p.now]; t != nil {
		t.pingNow(now)
	}
}

// askOthers pings the other answering paths together with the one in use, which has missed a ping:
// the next path in use must not be one that died with it, and trying them one after the other would
// take too long.
func (p *Peer) askOthers(now time.Time) {
	for w, t := range p.paths {
		if w.Direct() && w != p.now && t.alive(now, 2*pathSpare) {
			t.pingNow(now)
		}
	}
}

// InDoubt reports whether the path in use has missed a ping.
func (p *Peer) InDoubt() bool {
	t := p.paths[p.now]
	return t != nil && t.missed > 0
}

// calls reports whether a round includes a call. A call wakes the other end: a lazy peer that is
// only awake because the other end is announces its endpoints in the first rounds; further calls
// would keep both awake forever.
func (p *Peer) calls(now time.Time) bool {
	asks := !p.facts.Lazy || p.Wants(now) || recent(p.seek.began, now, pathSeekLong)
	return asks && !recent(p.called, now, pathCall)
}

func (p *Peer) seekNow(now time.Time) bool {
	if p.now.Direct() {
		return false
	}
	if p.seek.began.IsZero() {
		p.seek.restart(now)
	}
	return p.seek.step(now)
}

// order returns the paths in a stable order.
func (p *Peer) order() []Path {
	out := make([]Path, 0, len(p.paths))
	for w := range p.paths {
		out = append(out, w)
	}
	slices.SortFunc(out, func(a, b Path) int {
		return cmp.Or(cmp.Compare(p.paths[a].kind, p.paths[b].kind), a.Addr.Compare(b.Addr), cmp.Compare(a.Relay, b.Relay))
	})
	return out
}

// ping returns the pings that are due on a path.
func (p *Peer) ping(now time.Time, w Path, t *track) (out []Send) {
	if !w.Direct() && w != p.relay(now) {
		return nil
	}
	if t.next.IsZero() && !w.Direct() {
		t.next = now
	}
	if t.next.IsZero() || now.Before(t.next) {
		return nil
	}
	out = append(out, p.send(now, w, t, 0))
	if w == p.now && w.Direct() && t.missed == 0 {
		if size := t.size.next(now); size > 0 && !t.trying(size) {
			out = append(out, p.send(now, w, t, size))
		}
	}
	t.next = now.Add(p.interval(now, w, t))
	return out
}

func (t *track) trying(size int) bool {
	return slices.ContainsFunc(t.open, func(o ping) bool { return o.size == size })
}

func (p *Peer) send(now time.Time, w Path, t *track, size int) Send {
	id := p.rand()
	for id == 0 {
		id = p.rand()
	}
	t.open = append(t.open, ping{id: id, at: now, size: size})
	t.sent++
	return Send{To: w, Ping: id, Size: size, Wanted: p.Wants(now)}
}

// interval is the time to the next ping on a path, if nothing changes.
func (p *Peer) interval(now time.Time, w Path, t *track) time.Duration {
	switch {
	case w == p.now && t.missed > 0:
		return pathRetry
	case w == p.now && (p.isActive(now) || w.Direct() && !t.size.found()):
		return p.live()
	case w == p.now, !w.Direct():
		return pathKeep
	case !p.now.Direct():
		return pathSeek // rounds come earlier
	case p.InDoubt() && t.alive(now, 2*pathSpare):
		return pathRetry
	case t.alive(now, 2*pathSpare):
		return pathSpare
	}
	return pathHopeless
}

// live is the ping interval of a path with traffic.
func (p *Peer) live() time.Duration {
	if p.facts.Soon {
		return pathLiveSoon
	}
	return pathLive
}

// nextDue is the earliest time at which something is due by itself.
func (p *Peer) nextDue(now time.Time) time.Time {
	var due time.Time
	sooner := func(at time.Time) {
		if !at.IsZero() && (due.IsZero() || at.Before(due)) {
			due = at
		}
	}
	for w, t := range p.paths {
		if w.Direct() || w == p.relay(now) {
			sooner(t.next)
		}
		if !t.absent.IsZero() {
			sooner(t.absent.Add(pathAbsent))
		}
		for _, o := range t.open {
			sooner(o.at.Add(pathAnswer))
		}
		if !t.better.IsZero() {
			sooner(t.better.Add(pathBetter))
		}
	}
	if !p.now.Direct() {
		sooner(p.seek.next)
	}
	if p.facts.Lazy {
		sooner(later(p.traffic, p.wanted).Add(limit.PathIdle))
	}
	if !due.IsZero() && !due.After(now) { // what is due now was sent
		due = now.Add(pathRetry)
	}
	return due
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
