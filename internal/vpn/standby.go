// SPDX-License-Identifier: Apache-2.0

package vpn

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

// peer is a client of a server.
type peer struct {
	client   int    // its number at OpenVPN
	name     string // of its certificate
	active   bool   // the ranges of the cluster are behind it
	place    int    // of its addresses in the transfer networks: 1 is the first after the server's
	since    time.Time
	answered time.Time // zero: not yet
	from     string
	in, out  uint64 // bytes
}

// addresses are those in the transfer networks.
func (p peer) addresses(t transfer) (out []netip.Addr) {
	for _, network := range t.all() {
		a := network.Addr().Next() // the server's
		for range p.place {
			a = a.Next()
		}
		out = append(out, a)
	}
	return out
}

// alive reports whether packets pass, or it is too early to tell.
func (p peer) alive(now time.Time) bool {
	last := p.answered
	if last.IsZero() {
		last = p.since
	}
	return now.Sub(last) < deadAfter
}

// others counts the connections of clients of other names.
func others(peers []peer, name string) (n int) {
	for _, p := range peers {
		if p.name != name {
			n++
		}
	}
	return n
}

// favour is who had the ranges before OpenVPN was started again, and until when they are kept for it: connections live
// on if they go by the same client.
type favour struct {
	name  string
	until time.Time
}

func (f favour) holds(now time.Time) bool { return f.name != "" && now.Before(f.until) }

// takes reports whether a client that comes gets the ranges: nobody has them who is alive, or an earlier connection of
// the same client has, which OpenVPN ends.
func takes(peers []peer, name string, f favour, now time.Time) bool {
	if f.holds(now) && name != f.name {
		return false
	}
	return !slices.ContainsFunc(peers, func(p peer) bool { return p.active && p.name != name && p.alive(now) })
}

// placeOf is where the addresses of a client are: those that it had before if they are free, or the first free ones.
// The transfer networks have room for more than there may be clients.
func placeOf(peers []peer, name string, former map[string]int) int {
	taken := func(n int) bool {
		return slices.ContainsFunc(peers, func(p peer) bool { return p.place == n && p.name != name })
	}
	if n := former[name]; n > 0 && !taken(n) {
		return n
	}
	n := 1
	for taken(n) || reservedFor(former, name, n) && n <= clients {
		n++
	}
	return n
}

// reservedFor reports whether a place was that of another client.
func reservedFor(former map[string]int, name string, n int) bool {
	for other, place := range former {
		if other != name && place == n {
			return true
		}
	}
	return false
}

// relieve says which clients are to connect once more so that one that is alive has the ranges: the one that has them
// now, if it is dead, and the one that takes them. OpenVPN says what is behind a client only when it comes.
func relieve(peers []peer, now time.Time) (again []int) {
	var fit []peer
	for _, p := range peers {
		switch {
		case p.active && p.alive(now):
			return nil
		case p.active:
			again = append(again, p.client)
		case !p.answered.IsZero() && p.alive(now):
			fit = append(fit, p)
		}
	}
	if len(fit) == 0 {
		return nil
	}
	best := slices.MinFunc(fit, func(a, b peer) int { return cmp.Compare(a.client, b.client) })
	return append(again, best.client)
}
