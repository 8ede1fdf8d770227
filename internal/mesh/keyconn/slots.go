// SPDX-License-Identifier: Apache-2.0

package keyconn

import (
	"net/netip"
	"sync"
)

// slots are the connections that others may open.
type slots struct {
	mu           sync.Mutex
	all, unknown int
	of           map[netip.Addr]int
}

func newSlots() *slots { return &slots{of: map[netip.Addr]int{}} }

// crowded reports whether an address has to prove itself.
func (s *slots) crowded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all >= connsTrusted
}

// take takes a slot for an address, if there is one.
//
//	known: it is one of a peer
func (s *slots) take(a netip.Addr, known bool) (back func(), ok bool) {
	a = site(a)
	unknown := 1
	if known {
		unknown = 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all >= connsMost || s.of[a] >= connsOfOne || !known && s.unknown >= connsUnknown {
		return nil, false
	}
	s.all++
	s.unknown += unknown
	s.of[a]++
	return sync.OnceFunc(func() { s.back(a, unknown) }), true
}

func (s *slots) back(a netip.Addr, unknown int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	s.unknown -= unknown
	if s.of[a]--; s.of[a] == 0 {
		delete(s.of, a)
	}
}

// site is the unit by which addresses are counted: an IPv4 address or a /64 of IPv6.
func site(a netip.Addr) netip.Addr {
	a = a.Unmap().WithZone("")
	if !a.Is6() {
		return a
	}
	b := a.As16()
	clear(b[8:])
	return netip.AddrFrom16(b)
}
