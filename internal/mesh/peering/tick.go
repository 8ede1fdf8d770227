// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"net/netip"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/mesh/disco"
	"github.com/tombolo-io/tombolo/internal/mesh/path"
)

// todo is what one tick found to do.
type todo struct {
	apply  bool
	paths  []pathOf
	tries  []*link // preshared keys
	shakes []member.Key
	sends  []sending
}

type pathOf struct {
	key   member.Key
	via   path.Path
	local netip.Addr
}

// sending is a ping or call.
type sending struct {
	path.Send
	peer string
	from netip.Addr
	pair *disco.Pair
	asks bool // our handshakes are not answered
}

// tick does what is due, and says how long nothing is.
func (p *Peering) tick() time.Duration {
	p.turn.Lock()
	defer p.turn.Unlock()
	p.ask()
	var do todo
	p.mu.Lock()
	now := time.Now()
	p.wake(now)
	for len(p.due) > 0 && !p.due[0].due.After(now) {
		x := p.due[0]
		p.due.plan(x, time.Time{})
		p.step(now, x, &do)
	}
	touched := p.touched
	p.touched = nil
	for _, x := range touched {
		if !x.gone && x.touched {
			p.step(now, x, &do)
		}
	}
	do.apply = do.apply || p.stale
	p.mu.Unlock()
	p.perform(do)
	return p.wait()
}

// wait is how long nothing is due.
func (p *Peering) wait() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.peers) == 0 && !p.stale {
		return -1
	}
	due := p.askAt
	if len(p.due) > 0 {
		due = sooner(due, p.due[0].due)
	}
	if p.stale {
		due = sooner(due, time.Now().Add(peeringLook))
	}
	return max(0, time.Until(due))
}

// sooner is the earlier of two times, of which zero is none.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func recent(at, now time.Time, within time.Duration) bool {
	return !at.IsZero() && now.Sub(at) < within
}

// wake heeds the peers that have traffic after a silence.
func (p *Peering) wake(now time.Time) {
	for k := range p.wakes() {
		x := p.seen.Load().keys[k]
		if x == nil || x.gone {
			continue
		}
		p.wakeIdle(now, x)
		p.touch(x)
	}
}

// wakeIdle wakes a peer that is idle: a handshake is what the first packet makes. Those that come
// later are no traffic: they must not keep alive what does not answer.
func (p *Peering) wakeIdle(now time.Time, x *peer) {
	if s, _ := x.path.State(now); s == path.Idle {
		x.wanted = now
		x.path.Traffic(now)
	}
}

// step brings one peer up to date.
func (p *Peering) step(now time.Time, x *peer, do *todo) {
	x.touched = false
	p.traffic(now, x)
	p.tellUnanswered(now, x)
	sends, due := x.path.Next(now)
	x.askTogether(now, p)
	for _, s := range sends {
		do.sends = append(do.sends, sending{Send: s, peer: x.Name, from: x.leave(s.To), pair: x.speak(), asks: x.asks})
	}
	p.follow(now, x, do)
	p.keys(now, x.link, do)
	p.due.plan(x, sooner(due, x.lookAt))
}

// askTogether pings all peers that are asked together when this one begins to be in doubt.
func (x *peer) askTogether(now time.Time, p *Peering) {
	was := x.doubt
	x.doubt = x.path.InDoubt()
	if x.doubt == was || !x.Together {
		return
	}
	p.health.Store(true)
	p.news.Ring()
	if !x.doubt || recent(p.together, now, peeringTogether) {
		return
	}
	p.together = now
	for _, o := range p.peers {
		if o.Together && o != x {
			o.path.Ask(now)
			p.touch(o)
		}
	}
}

// traffic looks whether a peer has some. One that has none is watched: its next packet rings.
func (p *Peering) traffic(now time.Time, x *peer) {
	if !recent(x.packet, now, limit.PathActive) {
		p.parts.Traffic.Watch(x.Key) // before it is looked: a packet in between rings
	}
	newest, asked := x.packet, time.Time{}
	x.unsent = nil
	if a, ok := p.parts.Traffic.Activity(x.Key); ok {
		for _, at := range []time.Time{a.LastSent, a.LastReceived} {
			if at.After(newest) {
				newest = at
			}
		}
		asked, x.unsent = a.Asked, a.Unsent
	}
	if newest.After(x.packet) {
		x.packet = newest
		x.path.Traffic(now)
	}
	if !asked.Equal(x.asked) && !asked.IsZero() {
		p.wakeIdle(now, x)
	}
	x.asked = asked
	x.lookAt = time.Time{}
	if recent(x.packet, now, limit.PathActive) {
		x.lookAt = now.Add(peeringLook)
	}
}

// follow sets the path in use in the engine, and reports to routing what changed.
func (p *Peering) follow(now time.Time, x *peer, do *todo) {
	via := x.path.Path()
	var from netip.Addr
	if l := x.locals[via]; l != nil && via.Direct() {
		from = l.answered
	}
	was, wasDown := x.state, x.state == path.Down
	state, size := x.path.State(now)
	x.state = state
	settled := state == path.Idle && was != path.Idle && !x.Facts.Probes
	changed := via != x.via
	if changed || !x.told || from != x.from || settled { // WireGuard itself may have roamed
		do.paths = append(do.paths, pathOf{x.Key, via, from})
	}
	if changed && x.via.Direct() && !via.Direct() && state != path.Idle {
		p.lost.Store(true)
		p.news.Ring()
	}
	if changed {
		p.m.Paths.WithLabelValues(kindOf(x.via), kindOf(via)).Inc()
		p.log.Debug("path changed", telemetry.AttrNode, x.Name, "from", x.via.String(), "to", via.String())
		if !x.Facts.Probes {
			x.link.tried = time.Time{}
		}
	}
	if size == 0 && !changed && via.Direct() {
		size = x.size // it is determined again
	}
	if was != "" && wasDown != (state == path.Down) {
		p.log.Info("a peer is lost, or back", telemetry.AttrNode, x.Name, "state", string(state), "path", via.String())
	}
	by := p.parts.Encrypts
	if wasDown != (state == path.Down) || tunnelMTU(by, via, size) != tunnelMTU(by, x.via, x.size) {
		p.health.Store(true)
		p.news.Ring()
	}
	x.via, x.from, x.size, x.told = via, from, size, true
}

func kindOf(w path.Path) string {
	switch {
	case w.Direct():
		return "direct"
	case w.IsZero():
		return "none"
	}
	return "relayed"
}

// tunnelMTU is what remains within a tunnel of an IP packet that passes a path.
func tunnelMTU(by member.Engine, w path.Path, size int) int {
	if size == 0 || !w.Direct() {
		return 0
	}
	in := size - header(w)
	if by == member.IPsec {
		// ESP has SPI and sequence number, an IV and a check value (RFC 4106 sections 3 and 6), and fills packets and its
		// trailer of 2 bytes up to 4 (RFC 4303 section 2.4).
		const esp, iv, check, trailer = 8, 8, 16, 2
		return (in-esp-iv-check)/4*4 - trailer
	}
	// WireGuard fills packets up to 16 bytes as far as the link's MTU allows, which is the larger one.
	const wireGuard = 32
	return (in - wireGuard) / 16 * 16
}

// header is what IP and UDP take.
func header(w path.Path) int {
	if w.Addr.Addr().Is6() {
		return 40 + 8
	}
	return 20 + 8
}
