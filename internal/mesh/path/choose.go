// SPDX-License-Identifier: Apache-2.0

package path

import (
	"slices"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// choose puts the best path in use.
func (p *Peer) choose(now time.Time) {
	if !p.facts.Probes {
		return
	}
	best := p.best(now)
	if p.now.Direct() {
		t := p.paths[p.now]
		if t != nil && t.missed < pathMissed {
			best = p.contend(now, best)
		}
	}
	p.use(now, best)
}

// best is the cheapest direct path that answers, else a relay. A path that is not in use and has
// missed a ping comes last: it may have died together with the one in use.
func (p *Peer) best(now time.Time) Path {
	var best, doubtful Path
	for w, t := range p.paths {
		if !w.Direct() || !t.alive(now, 2*pathSpare) {
			continue
		}
		of := &best
		if t.missed > 0 && w != p.now {
			of = &doubtful
		}
		b := p.paths[*of]
		if b == nil || t.cost(w) < b.cost(*of) || t.cost(w) == b.cost(*of) && w.Addr.Compare(of.Addr) < 0 {
			*of = w
		}
	}
	if best.Direct() {
		return best
	}
	if w := p.relay(now); !w.IsZero() {
		return w
	}
	return doubtful
}

// contend returns the path in use, or another one that has been better for long enough.
func (p *Peer) contend(now time.Time, best Path) Path {
	use := p.paths[p.now]
	for w, t := range p.paths {
		if w != best || w == p.now || !t.clearly(w, use, p.now) {
			t.better = time.Time{}
		}
	}
	t := p.paths[best]
	if !best.Direct() || best == p.now || !t.clearly(best, use, p.now) {
		return p.now
	}
	if t.better.IsZero() {
		t.better = now
	}
	if now.Sub(t.better) < pathBetter {
		return p.now
	}
	return best
}

// clearly reports whether a path is so much better than the one in use that changing is worth it.
func (t *track) clearly(w Path, use *track, now Path) bool {
	mine, its := t.cost(w), use.cost(now)
	return mine*10 < its*8 && its-mine >= pathGain
}

// relay is the first of our hubs at which the peer may be.
func (p *Peer) relay(now time.Time) Path {
	var doubtful Path
	for _, name := range p.facts.Relays {
		w := Path{Relay: name}
		t := p.paths[w]
		if recent(t.absent, now, pathAbsent) {
			continue
		}
		if t.missed < pathMissed {
			return w
		}
		if doubtful.IsZero() {
			doubtful = w
		}
	}
	return doubtful // nobody answered by it, and nothing is better
}

func (p *Peer) use(now time.Time, w Path) {
	if w == p.now {
		return
	}
	lost := p.now.Direct() && !w.Direct()
	p.now, p.changed = w, now
	for _, t := range p.paths {
		t.better = time.Time{}
	}
	if t := p.paths[w]; t != nil {
		t.pingNow(now)
	}
	if lost {
		p.seek = seeking{}
		p.seek.restart(now)
	}
}

// rotation is whose turn it is among the candidates of a peer without probes.
type rotation struct {
	at    int
	began time.Time
	shook time.Time // its newest handshake
}

// Shook reports the time of the newest handshake with the peer, and the address from which
// WireGuard last heard it. For a peer without probes this proves a path.
func (p *Peer) Shook(now, at time.Time, from Path) {
	if !at.After(p.turn.shook) {
		return
	}
	p.turn.shook = at
	if !p.facts.Probes && from.Direct() {
		if p.paths[from] == nil {
			p.forgetHeard()
			p.paths[from] = &track{since: now, kind: Heard}
		}
		t := p.paths[from]
		t.answered, t.missed = at, 0
		p.use(now, from)
	}
}

// rotate tries one candidate after the other until a handshake succeeds.
func (p *Peer) rotate(now time.Time) time.Time {
	if !p.isWanted(now) {
		return time.Time{}
	}
	if recent(p.turn.shook, now, limit.PathHandshake) && p.now.Direct() {
		return p.turn.shook.Add(limit.PathHandshake)
	}
	var direct []Path
	for _, w := range p.order() {
		if w.Direct() {
			direct = append(direct, w)
		}
	}
	if len(direct) == 0 {
		p.use(now, Path{})
		return time.Time{}
	}
	if p.turn.began.IsZero() || !slices.Contains(direct, p.now) {
		p.turn.began = now
		p.use(now, direct[p.turn.at%len(direct)])
	} else if now.Sub(p.turn.began) >= pathTurn {
		t := p.paths[p.now]
		t.missed++
		t.sent++
		p.turn.at, p.turn.began = (slices.Index(direct, p.now)+1)%len(direct), now
		p.use(now, direct[p.turn.at])
	}
	return p.turn.began.Add(pathTurn)
}
