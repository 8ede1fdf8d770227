// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"crypto/rand"
	"net/netip"
	"slices"
	"time"

	"github.com/tombolo-io/tombolo/internal/mesh/disco"
	"github.com/tombolo-io/tombolo/internal/mesh/path"
)

// arrival is the path by which a packet came.
type arrival struct {
	via   path.Path
	local netip.Addr // of this machine; none through a relay
	peer  string     // through a relay: the sender, as the hub names it
}

// Probe takes a probe from the socket.
func (p *Peering) Probe(from netip.AddrPort, at netip.Addr, b []byte) {
	from = unmapped(from)
	if p.seen.Load().inside.contain(from.Addr()) {
		p.drop("inside")
		return
	}
	p.open(arrival{via: path.Path{Addr: from}, local: at.Unmap()}, b)
}

// Relayed takes what came from a peer by a hub: the engine's, or a probe. Whom it does not know the one beside it may.
func (p *Peering) Relayed(hub, name string, b []byte) {
	x, ok := p.seen.Load().by[name]
	switch {
	case !ok && p.parts.Beside != nil:
		p.parts.Beside.Relayed(hub, name, b)
		return
	case !ok:
		p.drop("no_peer")
		return
	}
	switch disco.KindOf(b) {
	case disco.WireGuard, disco.IPsec:
		if p.parts.Traffic.Receive(x.key, b) {
			p.bytes.relayedReceived.Add(uint64(len(b)))
		}
	case disco.Probe:
		p.open(arrival{via: path.Path{Relay: hub}, peer: name}, b)
	default:
		p.drop("malformed")
	}
}

func (p *Peering) drop(reason string) { p.m.Dropped.WithLabelValues(reason).Inc() }

// open finds the sender of a probe. One without the hint of a peer costs a look into a map.
func (p *Peering) open(a arrival, b []byte) {
	h, ok := disco.HintOf(b)
	if !ok {
		p.drop("malformed")
		return
	}
	links := p.seen.Load().hints[h]
	if a.peer != "" {
		links = slices.DeleteFunc(slices.Clone(links), func(l *link) bool { return p.seen.Load().names[l.key] != a.peer })
	}
	if len(links) == 0 {
		p.drop("no_peer")
		return
	}
	for _, l := range links {
		for i, pair := range l.pairs {
			m, err := pair.Open(b)
			if err != nil {
				continue
			}
			p.take(a, l, i, m, len(b))
			return
		}
	}
	p.drop("forged")
}

// take heeds a valid probe, and answers a ping: at once, by the path that it came.
func (p *Peering) take(a arrival, l *link, secret int, m disco.Message, size int) {
	if m.Ping == nil && m.Pong == nil && m.Call == nil {
		p.drop("unknown")
		return
	}
	wants, why := p.heed(a, l, secret, m)
	if why != "" {
		p.drop(why)
		return
	}
	p.m.Received.WithLabelValues(kindOfMessage(m)).Inc()
	if m.Ping == nil {
		return
	}
	answer := disco.Message{Pong: &disco.Pong{ID: m.Ping.ID, From: a.via.Addr, Size: uint16(size), Wanted: wants,
		Alone: p.alone.Load()}}
	b, err := l.pairs[secret].Seal(nil, rand.Reader, answer, 0)
	if err != nil || !p.give(a.via, a.peer, a.local, b, false) {
		p.drop("unsent")
		return
	}
	p.m.Sent.WithLabelValues("pong").Inc()
}

// heed notes what a probe says, or gives the reason for which it does not count. It says, too,
// whether we have traffic with the peer.
func (p *Peering) heed(a arrival, l *link, secret int, m disco.Message) (wants bool, why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	x, now := l.of, time.Now()
	if x.gone {
		return false, "no_peer"
	}
	if m.Pong == nil {
		// What comes by the path in use has a bound of its own: whoever replays pings from
		// elsewhere does not have the true ones dropped.
		w := &x.other
		if a.via == x.path.Path() {
			w = &x.direct
		}
		if !w.take(now, peeringProbes) {
			return false, "rate"
		}
	}
	switch {
	case m.Ping != nil:
		if m.Ping.Alone != x.alone { // a ping may be an old one, and the answer to ours is not
			x.path.Ask(now)
		}
		x.path.Heard(now, a.via, m.Ping.Wanted)
		if m.Ping.Wanted {
			p.noteDemand(now, l)
		}
		if m.Ping.Asks {
			x.missedByPeer = now
		}
		if a.via.Direct() {
			x.localOf(a.via).heard = a.local
		}
	case m.Pong != nil:
		if !x.path.Pong(now, a.via, m.Pong.ID) {
			return false, "unasked"
		}
		x.says(p, now, m.Pong.Alone)
		if m.Pong.Wanted {
			p.noteDemand(now, l)
		}
		if a.via.Direct() {
			x.localOf(a.via).answered = a.local
		}
	case m.Call != nil:
		x.path.Called(now, callable(m.Call.Endpoints, p.seen.Load().inside))
	}
	if l == x.link {
		p.certify(x, a.peer)
	}
	x.heard = l.secrets[secret].ID
	p.touch(x)
	return x.path.Wants(now), ""
}

// says notes whether the peer is alone, as it says: what changes without an end is heard once in a while. The caller
// holds mu.
func (x *peer) says(p *Peering, now time.Time, alone bool) {
	if x.alone != alone && !recent(x.aloneAt, now, peeringAlone) {
		x.alone, x.aloneAt = alone, now
		p.health.Store(true)
		p.news.Ring()
	}
}

// callable are the endpoints of a call that are pinged: none of the mesh, nor of this machine
// or its links alone.
func callable(all []netip.AddrPort, inside ranges) (out []netip.AddrPort) {
	for _, at := range all {
		at = unmapped(at)
		a := at.Addr()
		if !a.IsLoopback() && !a.IsLinkLocalUnicast() && !inside.contain(a) {
			out = append(out, at)
		}
	}
	return out
}
