// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"crypto/rand"
	"net/netip"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/mesh/disco"
	"github.com/tombolo-io/tombolo/internal/mesh/path"
)

// perform does what a tick found to do. The caller holds turn, and not mu.
func (p *Peering) perform(do todo) {
	if do.apply {
		if err := p.apply(); err != nil {
			p.log.Warn("WireGuard does not take its peers; it is tried again", "error", err)
		}
	}
	for _, w := range do.paths {
		p.parts.Engine.SetPath(w.key, w.via, w.local)
	}
	failed := func(what string, err error) {
		if err != nil { // the peer has gone meanwhile, or has no path
			p.log.Debug(what, "error", err)
		}
	}
	for _, l := range do.tries {
		failed("preshared key", p.parts.Engine.TryPSK(l.key, l.inForce()))
	}
	for _, k := range do.shakes {
		failed("handshake", p.parts.Engine.Handshake(k))
	}
	p.send(do.sends)
}

// send sends pings and calls.
func (p *Peering) send(all []sending) {
	var endpoints []netip.AddrPort
	told := false
	for _, s := range all {
		m := disco.Message{}
		if s.Call() {
			if !told && p.parts.Endpoints != nil {
				endpoints, told = p.parts.Endpoints(), true
			}
			m.Call = &disco.Call{Endpoints: endpoints[:min(len(endpoints), limit.PathCalledAt)]}
		} else {
			m.Ping = &disco.Ping{ID: s.Ping, Wanted: s.Wanted, Asks: s.asks, Alone: p.alone.Load()}
		}
		size := 0
		if s.Size > 0 {
			size = s.Size - header(s.To)
		}
		b, err := s.pair.Seal(nil, rand.Reader, m, size)
		if err != nil || !p.give(s.To, s.peer, s.from, b, s.Size > 0) {
			p.m.Dropped.WithLabelValues("unsent").Inc()
			continue
		}
		p.m.Sent.WithLabelValues(kindOfMessage(m)).Inc()
	}
}

// give hands a probe to the socket or the relay.
func (p *Peering) give(to path.Path, peer string, from netip.Addr, b []byte, whole bool) bool {
	switch {
	case !to.Direct():
		return p.relay != nil && p.relay.Send(to.Relay, peer, b) == 1
	case p.seen.Load().inside.contain(to.Addr.Addr()):
		return false
	case whole:
		return p.parts.Socket.SendWhole(to.Addr, from, b) == nil
	}
	return p.parts.Socket.Send(to.Addr, from, b) == nil
}

func kindOfMessage(m disco.Message) string {
	switch {
	case m.Ping != nil:
		return "ping"
	case m.Pong != nil:
		return "pong"
	}
	return "call"
}
