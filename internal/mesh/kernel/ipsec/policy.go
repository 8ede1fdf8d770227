// SPDX-License-Identifier: Apache-2.0

package ipsec

import (
	"cmp"
	"net/netip"
	"slices"
)

// Peer is another node, and what goes to it.
type Peer struct {
	// ID is what its policies and states have in common (reqid); at least 1, and of this peer alone.
	ID uint32
	// Local and Remote are the outer addresses of what is sent to it. Zero: there is no path, and nothing leaves.
	Local, Remote netip.Addr
	// Ranges are sent to it, and taken from it and nobody else. Of two that overlap the longer one counts.
	Ranges []netip.Prefix
}

// direction is that of a policy, by the kernel's numbers (XFRM_POLICY_IN and so on).
type direction int

const (
	in direction = iota
	out
	forward
)

// policy is one rule about packets of the link.
type policy struct {
	dir direction
	far netip.Prefix // of destinations if it is about what goes out, else of sources
}

// meaning is what becomes of the packets of a policy.
type meaning struct {
	priority      uint32 // the lowest counts
	peer          uint32 // 0: they are dropped
	local, remote netip.Addr
}

// The priorities of our policies, which only compete with each other: they have the link's id.
const (
	longest = 0x5400 // of the longest range
	blocked = 0x5fff
)

// everything are the ranges of all addresses.
var everything = []netip.Prefix{
	netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0),
}

// policies are those of a link with some peers: a range that several have is the first one's.
func policies(peers []Peer) map[policy]meaning {
	all := map[policy]meaning{}
	add := func(p policy, m meaning) {
		if _, there := all[p]; !there {
			all[p] = m
		}
	}
	for _, p := range peers {
		for _, r := range p.Ranges {
			r = r.Masked()
			at := uint32(longest + 128 - r.Bits())
			if p.Local.IsValid() && p.Remote.IsValid() {
				add(policy{out, r}, meaning{at, p.ID, p.Local.Unmap(), p.Remote.Unmap()})
			} else {
				add(policy{out, r}, meaning{priority: at}) // not by a shorter range of another one
			}
			// By which path packets come is the sender's choice: the peer is known by the state's reqid.
			for _, dir := range []direction{in, forward} {
				add(policy{dir, r}, meaning{priority: at, peer: p.ID})
			}
		}
	}
	for _, dir := range []direction{in, out, forward} {
		for _, r := range everything {
			add(policy{dir, r}, meaning{priority: blocked})
		}
	}
	return all
}

// change is a policy that has to be made or replaced, or one that has to go.
type change struct {
	policy
	meaning
	gone bool
}

// changes are what makes the policies that are wanted of those that are there. What is new or different comes first:
// no packet meets a gap, and one that loses its peer is blocked before.
func changes(have, want map[policy]meaning) (todo []change) {
	for p, m := range want {
		if h, there := have[p]; !there || h != m {
			todo = append(todo, change{policy: p, meaning: m})
		}
	}
	for p := range have {
		if _, stays := want[p]; !stays {
			todo = append(todo, change{policy: p, gone: true})
		}
	}
	slices.SortFunc(todo, func(a, b change) int {
		order := func(c change) int {
			switch {
			case c.gone:
				return 2
			case c.peer != 0:
				return 1
			}
			return 0
		}
		return cmp.Or(cmp.Compare(order(a), order(b)), cmp.Compare(a.dir, b.dir), a.far.Compare(b.far))
	})
	return todo
}
