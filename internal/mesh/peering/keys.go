// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/mesh/path"
	"github.com/tombolo-io/tombolo/internal/mesh/tunnel"
)

// sessionEnd is for how long WireGuard uses a session (whitepaper, section 6.1).
const sessionEnd = 180 * time.Second

// keys looks after the preshared key of a pair, and handshakes that this node must begin.
func (p *Peering) keys(now time.Time, l *link, do *todo) {
	x := l.of
	asked := p.pending(now, l)
	switch {
	case !l.turnPSK(now, asked):
	case x.state == path.Idle || !l.patient: // nobody wants a handshake, or the peer begins it
		do.apply = true
	default:
		do.tries = append(do.tries, l)
	}
	if !asked.IsZero() && len(l.secrets) > 1 {
		p.again(now, x, peeringLook)
	}
	if left := peeringWish - now.Sub(l.demandSince); l.shook.IsZero() &&
		recent(l.demandSince, now, peeringWish) {
		p.again(now, x, left) // a look at the peer's traffic has put it off
	}
	wait, wants := p.wantsHandshake(now, l)
	if wait > 0 {
		p.again(now, x, wait)
	}
	if !wants || wait > 0 {
		return
	}
	p.again(now, x, peeringLook)
	if l.shook.IsZero() && recent(l.made, now, peeringRekey) {
		p.askBy(now.Add(p.often()))
	}
	if !recent(l.tried, now, peeringShake) {
		l.tried = now
		do.shakes = append(do.shakes, l.key)
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
	if x.state == path.Idle || x.Facts.Lazy && !recent(late, now, peeringTry) {
		return time.Time{}
	}
	a, ok := p.parts.Traffic.Activity(l.key)
	if !ok || !a.Asked.After(l.shook) {
		return time.Time{}
	}
	return a.Asked
}

// wantsHandshake reports whether this node must begin one by itself, and how long it leaves that to
// the peer: WireGuard does so with a packet alone.
func (p *Peering) wantsHandshake(now time.Time, l *link) (wait time.Duration, wants bool) {
	x := l.of
	if x.state == path.Idle || x.via.IsZero() {
		return 0, false
	}
	// Handshakes that both ends begin within a round trip fail, and WireGuard tries again after
	// 5 s only: where both know the reason at one time, the end with the greater key goes first.
	yield := func(since time.Time) time.Duration {
		if l.patient {
			return 0
		}
		return max(0, peeringYield-now.Sub(since))
	}
	switch {
	case l.rekeyed && l.shook.IsZero() && recent(l.made, now, peeringRekey):
		return 0, true // the peer has a new key, and its own handshakes were dropped until now
	case l.psk.Since.After(l.shook) && recent(l.shook, now, sessionEnd):
		return yield(l.psk.Since), true // the session is of another preshared key: both have time to agree before it ends
	case l.shook.IsZero() && recent(l.demandSince, now, limit.PathActive) && now.Sub(l.demandSince) >= peeringWish:
		return 0, true // it may have a session with us of our last run, and notices after 15 s
	case recent(x.missedByPeer, now, peeringShake):
		return 0, true // we drop its handshakes: its clock was put back
	case !x.Facts.Probes && x.via.Direct() && !recent(l.shook, now, limit.PathHandshake):
		return yield(l.made), true
	}
	return 0, false
}

// noteDemand notes that a peer has traffic for us. Mostly it begins a session itself; one that has
// a session with a node that has restarted since does not, and what it sends is lost.
func (p *Peering) noteDemand(now time.Time, l *link) {
	if !l.shook.IsZero() {
		return
	}
	if !recent(l.demandSince, now, limit.PathActive) {
		l.demandSince = now
	}
	p.again(now, l.of, peeringWish)
}

// unanswered is for how long a peer has answered no handshake of ours, if that is long enough
// to ask it for one of its own. It drops all as replays while this machine's clock is behind
// the time of a handshake that it had from us before.
func (p *Peering) unanswered(now time.Time, x *peer) time.Duration {
	if x.asked.IsZero() || !x.Facts.Probes || x.link.shook.After(x.asked) { // it was seen since
		return 0
	}
	if p.asked.Before(x.asked.Add(peeringAsk)) { // WireGuard has not been asked since
		return 0
	}
	return now.Sub(x.asked)
}

// tellUnanswered has pings say whether a peer answers no handshake, the first of them at once.
func (p *Peering) tellUnanswered(now time.Time, x *peer) {
	asks := p.unanswered(now, x) > 0
	if asks && !x.asks {
		x.path.Ask(now)
	}
	x.asks = asks
	switch left := x.asked.Add(peeringAsk).Sub(now); {
	case x.asked.IsZero() || !x.Facts.Probes || x.state == path.Down || x.state == path.Idle:
	case left > 0:
		p.again(now, x, left)
	case recent(x.asked, now, limit.WireGuardRepeats): // it tries no longer
		p.again(now, x, peeringLook)
	}
}

// often is how often WireGuard is asked while a first handshake is under way: the more peers, the
// more an answer costs.
func (p *Peering) often() time.Duration {
	return min(peeringLook, peeringSoon*time.Duration(1+len(p.peers)/50))
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
	stats, err := p.parts.Traffic.Stats()
	if err != nil {
		p.log.Warn("WireGuard says nothing of its peers", "error", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.asked = now
	if !p.askAt.After(now) {
		p.askAt = now.Add(peeringStats)
	}
	for _, s := range stats {
		if x := p.seen.Load().keys[s.Key]; x != nil {
			p.note(now, x.link, s)
		}
	}
}

// note takes what WireGuard reports about a link.
func (p *Peering) note(now time.Time, l *link, s tunnel.Stat) {
	count := func(total *uint64, n uint64) uint64 {
		was := *total
		*total = n
		if n < was { // WireGuard made the peer again
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
	l.handshake, l.shook = s.Handshake, at
	p.m.Handshakes.Inc()
	l.of.path.Shook(now, at, path.Path{Addr: unmapped(s.Heard)})
	p.touch(l.of)
}
