// SPDX-License-Identifier: Apache-2.0

package wireguard

import (
	"bytes"
	"net"
	"net/netip"
	"slices"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/mesh/tunnel"
)

// seen is what looks have shown of a peer.
type seen struct {
	handshake time.Time     // as the kernel says, by the wall clock
	counts    bool          // it is one to tell: not from long before this process
	age       time.Duration // of it when it was first seen, if it is from before
	shakes    uint64
	shook     time.Time // when the newest was seen, less its age
	tx, rx    uint64    // bytes
	heard     netip.AddrPort
	keepalive time.Duration

	sent, received         uint64 // looks at which there was traffic
	lastSent, lastReceived time.Time
	asked                  time.Time
	begun                  time.Time // when a handshake began that the kernel repeats by itself
	watched                bool

	probes bool           // its path is found by probes, and not by what the kernel hears
	to     netip.AddrPort // the path; not valid: none was set
}

// took is what is known of a peer that was there before this process. A handshake that is
// too old to say anything of the path is none. The wall clock may have jumped: one of the
// future is taken for a new one.
func took(p wgtypes.Peer, now time.Time) *seen {
	s := &seen{
		handshake: p.LastHandshakeTime, tx: uint64(p.TransmitBytes), rx: uint64(p.ReceiveBytes),
		heard: addrPort(p.Endpoint), keepalive: p.PersistentKeepaliveInterval,
	}
	if s.handshake.IsZero() {
		return s
	}
	s.age = max(0, now.Round(0).Sub(s.handshake))
	if s.age < limit.PathHandshake {
		s.counts, s.shakes, s.shook = true, 1, now.Add(-s.age)
	}
	return s
}

// learn takes in a look, and reports whether there was traffic, or a packet that waits for
// a handshake.
func (s *seen) learn(p wgtypes.Peer, now time.Time) bool {
	grown := func(was *uint64, n int64) uint64 {
		before := *was
		if *was = uint64(n); *was < before { // the peer was made again
			return *was
		}
		return *was - before
	}
	tx, rx := grown(&s.tx, p.TransmitBytes), grown(&s.rx, p.ReceiveBytes)
	s.heard, s.keepalive = addrPort(p.Endpoint), p.PersistentKeepaliveInterval
	late := s.shook.IsZero() || now.Sub(s.shook) >= limit.PathHandshake
	if at := p.LastHandshakeTime; !at.IsZero() && !at.Equal(s.handshake) {
		s.handshake, s.counts, s.age, s.shook, s.asked = at, true, 0, now, time.Time{}
		s.shakes++
		late = false
	}
	wakes := false
	if content(tx) {
		s.sent, s.lastSent, wakes = s.sent+1, now, true
	}
	if content(rx) {
		s.received, s.lastReceived, wakes = s.received+1, now, true
	}
	if late && tx > 0 { // a handshake that should have been completed was not
		if s.begun.IsZero() || now.Sub(s.begun) >= limit.WireGuardRepeats {
			// A packet began it. What is only repeated must not keep a peer awake that does not answer.
			wakes, s.begun = true, now
		}
		s.shaken(now)
	}
	return wakes
}

// shaken notes that a handshake may be waiting for its answer.
func (s *seen) shaken(now time.Time) {
	if s.asked.IsZero() && (s.shook.IsZero() || now.Sub(s.shook) >= limit.PathHandshake) {
		s.asked = now
	}
}

// content reports whether bytes were more than handshakes and keepalives: of those there is
// hardly more than one each between two looks. A keepalive has 32 bytes, an initiation 148, a
// response 92; a packet with content is a multiple of 16, of 48 at least.
func content(n uint64) bool {
	switch n {
	case 0, 32, 92, 92 + 32, 148, 148 + 32:
		return false
	}
	return true
}

func (s *seen) activity() tunnel.Activity {
	return tunnel.Activity{Sent: s.sent, Received: s.received, LastSent: s.lastSent,
		LastReceived: s.lastReceived, Asked: s.asked}
}

func (s *seen) stat(k member.Key) tunnel.Stat {
	out := tunnel.Stat{Key: k, Shakes: s.shakes, Sent: s.tx, Received: s.rx, Heard: s.heard, Activity: s.activity()}
	if s.heard.Addr().IsLoopback() { // by a relay, perhaps that of a run that has ended
		out.Heard = netip.AddrPort{}
	}
	if s.counts {
		out.Handshake, out.Age = s.handshake, s.age
	}
	return out
}

func sorted(all []tunnel.Stat) []tunnel.Stat {
	slices.SortFunc(all, func(a, b tunnel.Stat) int { return bytes.Compare(a.Key[:], b.Key[:]) })
	return all
}

func unmapped(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

func addrPort(u *net.UDPAddr) netip.AddrPort {
	if u == nil {
		return netip.AddrPort{}
	}
	return unmapped(u.AddrPort())
}

func udp(a netip.AddrPort) *net.UDPAddr {
	return net.UDPAddrFromAddrPort(a)
}
