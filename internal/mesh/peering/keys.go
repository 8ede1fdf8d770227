// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"slices"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/mesh/path"
	"github.com/tombolo-io/tombolo/internal/mesh/tunnel"
)

// sessionFresh is for how long WireGuard uses a session before it makes another one, and
// sessionEnd for how long at all (whitepaper, section 6.1).
const sessionFresh, sessionEnd = 120 * time.Second, 180 * time.Second

// keys looks after the keys of a link: the preshared one, handshakes that must be made, and
// which key has the ranges.
func (p *Peering) keys(now time.Time, l *link, do *todo) {
	x := l.of
	asked := p.pending(now, l)
	switch {
	case !l.turnPSK(now, asked):
	case len(p.own) > 1 || x.state == path.Idle: // a device each has its own; nobody wants a handshake
		do.apply = true
	default:
		do.tries = append(do.tries, l)
	}
	if !asked.IsZero() && len(l.secrets) > 1 {
		p.again(now, x, limit.PeeringLook)
	}
	if left := limit.PeeringWish - now.Sub(l.wished); l.shook.IsZero() && recent(l.wished, now, limit.PeeringWish) {
		p.again(now, x, left) // a look at the peer's traffic has put it off
	}
	if p.wantsHandshake(now, l) {
		p.again(now, x, limit.PeeringLook)
		if l.shook.IsZero() && recent(l.made, now, limit.PeeringSettle) { // whoever never answers is not worth it
			p.askBy(now.Add(p.often()))
		}
		if !recent(l.tried, now, limit.PeeringShake) {
			l.tried = now
			if l.asking.IsZero() {
				l.asking = now
			}
			if l.own == p.own[0] {
				do.shakes = append(do.shakes, l.key)
			} else {
				do.nexts = append(do.nexts, l.key)
			}
		}
	}
	carrier := x.carrier(l.own)
	if x.carries[l.own.key] != carrier {
		do.apply = true
	}
	if l.own != p.own[0] && l.key == carrier && !l.shook.IsZero() && !l.shifted {
		l.shifted = true
		do.shifts = append(do.shifts, l.key)
	}
}

// again has a peer looked at and WireGuard asked before long.
func (p *Peering) again(now time.Time, x *peer, in time.Duration) {
	x.lookAt = sooner(x.lookAt, now.Add(in))
	p.askBy(now.Add(in))
}

// pending is since when a handshake of a link waits for its answer, as far as another preshared
// key is worth a try; zero: none does.
func (p *Peering) pending(now time.Time, l *link) time.Time {
	x := l.of
	late := x.packet
	if x.wanted.After(late) {
		late = x.wanted
	}
	switch {
	case x.state == path.Idle, x.Facts.Lazy && !recent(late, now, limit.PeeringTry):
		return time.Time{}
	case l.own != p.own[0]: // what the engine counts is of both devices
		return l.asking
	case len(p.own) > 1 && recent(l.shook, now, sessionFresh):
		return time.Time{}
	}
	a, ok := p.parts.Engine.Activity(l.key)
	if !ok || !a.Asked.After(l.shook) {
		return time.Time{}
	}
	return a.Asked
}

// wantsHandshake reports whether this node must begin one by itself: WireGuard does so with a
// packet alone.
func (p *Peering) wantsHandshake(now time.Time, l *link) bool {
	x := l.of
	switch {
	case x.state == path.Idle || x.way.IsZero():
		return false
	case l.key == x.Keys[0] && (len(x.Keys) > 1 || l.own != p.own[0]) && l.shook.IsZero():
		return true // one of the two has a new key
	case l.key == x.carrier(l.own) && l.psk.Since.After(l.shook) && recent(l.shook, now, sessionEnd):
		return true // the session is of another preshared key: both have time to agree before it ends
	}
	if l.key == x.carrier(l.own) && l.shook.IsZero() && recent(l.wished, now, limit.PathActive) && now.Sub(l.wished) >= limit.PeeringWish {
		return true // it may have a session with us of our last run, and notices after 15 s
	}
	if l.key == x.carrier(l.own) && l.own == p.own[0] && recent(x.begged, now, limit.PeeringShake) {
		return true // we drop its handshakes: its clock was put back
	}
	return !x.Facts.Probes && l.own == p.own[0] && l.key == x.carrier(l.own) && x.way.Direct() &&
		!recent(l.shook, now, limit.PathHandshake)
}

// wish notes that a peer has traffic for us. Mostly it begins a session itself; one that has
// a session with a node that has started anew since does not, and what it sends is lost.
func (p *Peering) wish(now time.Time, l *link) {
	if !l.shook.IsZero() {
		return
	}
	if !recent(l.wished, now, limit.PathActive) {
		l.wished = now
	}
	p.again(now, l.of, limit.PeeringWish)
}

// unanswered is for how long a peer has answered no handshake of ours, if that is long enough
// to ask it for one of its own. It drops all as replays while this machine's clock is behind
// the time of a handshake that it had from us before.
func (p *Peering) unanswered(now time.Time, x *peer) time.Duration {
	answered := func(l *link) bool { return l.shook.After(x.asked) } // it was seen since
	if x.asked.IsZero() || !x.Facts.Probes || slices.ContainsFunc(x.links, answered) {
		return 0
	}
	if p.asked.Before(x.asked.Add(limit.PeeringAsk)) { // WireGuard has not been asked since
		return 0
	}
	return now.Sub(x.asked)
}

// beg has pings say whether a peer answers no handshake, the first of them at once.
func (p *Peering) beg(now time.Time, x *peer) {
	asks := p.unanswered(now, x) > 0
	if asks && !x.asks {
		x.path.Ask(now)
	}
	x.asks = asks
	switch left := x.asked.Add(limit.PeeringAsk).Sub(now); {
	case x.asked.IsZero() || !x.Facts.Probes || x.state == path.Down || x.state == path.Idle:
	case left > 0:
		p.again(now, x, left)
	case recent(x.asked, now, limit.WireGuardRepeats): // it tries no longer
		p.again(now, x, limit.PeeringLook)
	}
}

// often is how often WireGuard is asked while ranges are to move.
func (p *Peering) often() time.Duration {
	return min(limit.PeeringLook, limit.PeeringSoon*time.Duration(1+len(p.peers)/50))
}

// askBy has WireGuard asked about all peers at this time, if it is not before.
func (p *Peering) askBy(at time.Time) { p.askAt = sooner(p.askAt, at) }

// ask asks WireGuard about all peers, if it is time. The caller holds turn.
func (p *Peering) ask() {
	p.mu.Lock()
	due := !p.askAt.IsZero() && !time.Now().Before(p.askAt)
	p.mu.Unlock()
	if due {
		p.refresh()
	}
}

// refresh asks WireGuard. The caller holds turn.
func (p *Peering) refresh() {
	stats := make([][]tunnel.Stat, len(p.own))
	var err error
	if stats[0], err = p.parts.Engine.Stats(); err != nil {
		p.log.Warn("WireGuard says nothing of its peers", "error", err)
	}
	if len(p.own) > 1 {
		if stats[1], err = p.parts.Engine.StatsNext(); err != nil {
			p.log.Warn("WireGuard says nothing of its peers under the new key", "error", err)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.asked = now
	if !p.askAt.After(now) {
		p.askAt = now.Add(limit.PeeringStats)
	}
	for i, o := range p.own {
		for _, s := range stats[i] {
			x := p.seen.Load().keys[s.Key]
			if x == nil {
				continue
			}
			if l := x.link(o, s.Key); l != nil {
				p.note(now, l, s)
			}
		}
	}
}

// note learns what WireGuard says of a link.
func (p *Peering) note(now time.Time, l *link, s tunnel.Stat) {
	count := func(total *uint64, n uint64) uint64 {
		was := *total
		*total = n
		if n < was { // WireGuard made the peer anew
			return n
		}
		return n - was
	}
	p.bytes.sent.Add(count(&l.session.sent, s.Sent))
	p.bytes.received.Add(count(&l.received, s.Received))
	if s.Handshake.IsZero() || s.Handshake.Equal(l.handshake) {
		return
	}
	at := now.Add(-s.Age) // of a link that was taken over
	l.handshake, l.shook, l.asking = s.Handshake, at, time.Time{}
	p.m.Handshakes.Inc()
	l.of.path.Shook(now, at, path.Way{Addr: unmapped(s.Heard)})
	p.touch(l.of)
}
