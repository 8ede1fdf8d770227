// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
)

// What is kept costs more than what was sent: a place in a map that is half full,
// the headers of what it points to, and what the allocator rounds up. Measured, and
// held by TestBytesAreMemory.
const (
	costMember   = 320
	costEndpoint = 56
	costCluster  = 1000
	costShare    = 190
)

// weight is the memory of a member.
func weight(member string, l roster.Lease) (n int64) {
	if !l.Exists() {
		return 0
	}
	n = int64(costMember + len(member) + len(l.Data))
	for _, e := range l.Endpoints {
		n += int64(costEndpoint + len(e.Blob))
	}
	return n
}

// held is a member on the board, and in whose share it counts.
type held struct {
	roster.Lease
	by *share // nil: none, as its party is not known
}

// owner is the party of that share; not valid without one.
func (h held) owner() netip.Addr {
	if h.by == nil {
		return netip.Addr{}
	}
	return h.by.net.addr
}

// area is what a share is of: a party, or parties with equal first bits.
type area struct {
	addr netip.Addr
	bits int // whole bytes
}

func areaOf(a netip.Addr, bits int) area {
	if a.Is4() {
		b := a.As4()
		clear(b[bits/8:])
		return area{netip.AddrFrom4(b), bits}
	}
	b := a.As16()
	clear(b[bits/8:])
	return area{netip.AddrFrom16(b), bits}
}

func (n area) String() string {
	if n.bits == n.addr.BitLen() {
		return n.addr.String()
	}
	return fmt.Sprintf("%v/%d", n.addr, n.bits)
}

// share is what a party has on a board, or all parties of a network. What it counts
// changes under the lock of shares, what it is of never.
type share struct {
	net      area
	up       *share // of the network around it; nil: none is counted
	bytes    int64
	clusters int
}

// shares are those of all parties that have something, and of the networks around
// them. Without them one party could fill the whole service.
type shares struct {
	mu     sync.Mutex
	of     map[area]*share
	memory atomic.Int64 // of themselves, which counts with all bytes and with no party
}

// claim is a change of a member, as far as it concerns shares.
type claim struct {
	by       *share     // in whose share it is
	to       netip.Addr // the party that brings it; not valid: unknown
	was, now int64      // bytes, those of a cluster that it begins included
	clusters int        // 1 if it begins one
}

// around is how many bits the networks of a party have that have a share, from the
// party itself outwards. A site of IPv6 has all the /64s of a /56 or a /48, and all addresses of
// an IPv4 /24 can be rented for little.
func around(p netip.Addr) []int {
	if p.Is4() {
		return []int{32, discoveryNet4}
	}
	return []int{64, discoverySite6, discoveryNet6}
}

// most is how much a network may have: what a party may, and the widest ones twice
// that, as long as it is not beyond a quarter of the whole.
func most[N int | int64](bits int, party, whole N) N {
	if party <= 0 || bits != discoveryNet4 && bits != discoveryNet6 {
		return party
	}
	wide := party * discoveryNetShares
	if whole > 0 {
		wide = min(wide, whole/discoveryNetMost)
	}
	return max(party, wide)
}

// has is whether a member that is in share s is in that of a network, too.
func (s *share) has(n area) bool {
	return s != nil && n.addr.Is4() == s.net.addr.Is4() && areaOf(s.net.addr, n.bits) == n
}

// owner decides in whose share a member is from now on: of who brought it last. If
// there is no room, it stays where it is, as long as it does not grow. Nobody's goes
// to who puts it again, room or not: it would be room for him that is never counted.
func (s *shares) owner(c claim, b Bounds) (netip.Addr, error) {
	if !c.to.IsValid() || c.now == 0 {
		return c.to, nil
	}
	for _, bits := range around(c.to) {
		err := s.room(areaOf(c.to, bits), c, b)
		switch {
		case err == nil:
		case c.clusters > 0 || c.now > c.was:
			return c.to, err
		case c.by != nil:
			return c.by.net.addr, nil
		}
	}
	return c.to, nil
}

// room says whether a network has it for a claim.
func (s *shares) room(n area, c claim, b Bounds) error {
	bytes, clusters, before := c.now, c.clusters, int64(0)
	if c.by.has(n) {
		if before = c.was; c.now <= c.was {
			return nil
		}
	}
	if has := s.of[n]; has != nil {
		bytes, clusters = bytes+has.bytes-before, clusters+has.clusters
	}
	mostClusters := most(n.bits, b.ClustersPerAddress, b.Clusters)
	mostBytes := most(n.bits, b.BytesPerAddress, b.Bytes)
	if c.was == 0 {
		mostBytes = admission(mostBytes)
	}
	switch {
	case mostClusters > 0 && c.clusters > 0 && clusters > mostClusters:
		return fault.New(fault.CodeLimit, "the cluster is not taken").
			Whyf("%v began %d clusters, and its bound is %d", n, clusters-1, mostClusters).
			Hint("raise limits.clustersPerAddress of the service")
	case mostBytes > 0 && bytes > mostBytes:
		return fault.New(fault.CodeLimit, "the member is not taken").
			Whyf("%v has %d bytes of members, and its bound is %d", n, bytes-c.now, mostBytes).
			Hint("raise limits.bytesPerAddress of the service")
	}
	return nil
}

// check says whether there is room for a claim.
func (s *shares) check(c claim, b Bounds) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := s.owner(c, b)
	return err
}

// move does what a claim asks for, and says in whose share the member is now.
func (s *shares) move(c claim, b Bounds) (*share, error) {
	if c.was == c.now && (c.by != nil && c.by.net.addr == c.to || c.by == nil && !c.to.IsValid()) {
		return c.by, nil // most updates: the same member again
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	owner, err := s.owner(c, b)
	if err != nil {
		return nil, err
	}
	s.addLocked(c.by, -c.was, 0)
	if !owner.IsValid() || c.now == 0 {
		return nil, nil
	}
	to := s.findLocked(owner)
	s.addLocked(to, c.now, c.clusters)
	return to, nil
}

// findLocked is the share of a party, made with those around it if there is none. The lock
// is held, and what is made must be counted in: an empty one is never forgotten.
func (s *shares) findLocked(party netip.Addr) *share {
	var first, below *share
	for _, bits := range around(party) {
		n := areaOf(party, bits)
		is, there := s.of[n]
		if !there {
			is = &share{net: n}
			s.of[n] = is
			s.memory.Add(costShare)
		}
		if below != nil {
			below.up = is
		} else {
			first = is
		}
		if there {
			break // what is around it is there, too
		}
		below = is
	}
	return first
}

// addLocked counts in a share and in those around it, which are forgotten when they are
// empty. The lock is held.
func (s *shares) addLocked(to *share, bytes int64, clusters int) {
	for ; to != nil; to = to.up {
		to.bytes += bytes
		to.clusters += clusters
		if to.bytes == 0 && to.clusters == 0 {
			delete(s.of, to.net)
			s.memory.Add(-costShare)
		}
	}
}

// drop gives back a cluster and its bytes.
func (s *shares) drop(of *share, bytes int64) {
	if of == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addLocked(of, -bytes, -1)
}

// admission is the part of a bound up to which new members are taken. The rest is
// for those that are there to grow.
func admission(bound int64) int64 { return bound - bound/discoveryReserve }
