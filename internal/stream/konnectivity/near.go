// SPDX-License-Identifier: Apache-2.0

package konnectivity

import "net/netip"

// nearby are the ids of the agents that can be dialled through, by what they are near to, so that a choice costs the
// same however many there are:
//
//	strategy, host ── group ──► agents with a tunnel that does not drain, else those whose tunnels all do
//
// Agents.mu guards it.
type nearby struct {
	order  []Strategy // no other is asked for
	groups map[group]*members
	bits   [129]int // groups of ranges with so many
}

// group is what agents are chosen by.
type group struct {
	by     Strategy
	host   string     // of ByDestHost
	within netip.Addr // of ByDestCIDR: the first address of the range, and its bits
	bits   int
}

func newNearby(order []Strategy) nearby { return nearby{order: order, groups: map[group]*members{}} }

// groupsOf are those to which an agent belongs, some perhaps twice.
func groupsOf(s Strategy, i Identifiers) (out []group) {
	switch s {
	case ByDestHost:
		for _, h := range i.Hosts {
			out = append(out, group{by: s, host: h})
		}
	case ByDestCIDR:
		for _, r := range i.Ranges {
			out = append(out, group{by: s, within: r.Addr(), bits: r.Bits()})
		}
	default:
		if i.serves(s) {
			out = append(out, group{by: s})
		}
	}
	return out
}

// count notes that an agent has more or fewer tunnels near to i, and that more or fewer of them drain.
func (n *nearby) count(id string, i Identifiers, tunnels, draining int) {
	for _, s := range n.order {
		for _, g := range groupsOf(s, i) {
			m := n.groups[g]
			if m == nil {
				m = &members{of: map[string]member{}}
				n.groups[g] = m
				n.sized(g, +1)
			}
			if m.count(id, tunnels, draining); len(m.of) == 0 {
				delete(n.groups, g)
				n.sized(g, -1)
			}
		}
	}
}

func (n *nearby) sized(g group, change int) {
	if g.by == ByDestCIDR {
		n.bits[g.bits] += change
	}
}

// find gives the agents that suit a host equally well by a strategy, and better than all others. One whose tunnels all
// drain is the last resort, and the narrowest range suits best.
func (n *nearby) find(s Strategy, host string) []string {
	g := group{by: s}
	switch s {
	case ByDestCIDR:
		return n.narrowest(host)
	case ByDestHost:
		g.host = host
	}
	m := n.groups[g]
	switch {
	case m == nil:
		return nil
	case len(m.lists[stays]) > 0:
		return m.lists[stays]
	}
	return m.lists[drains]
}

// narrowest is find by ranges.
func (n *nearby) narrowest(host string) []string {
	addr, err := netip.ParseAddr(host)
	if addr = addr.Unmap(); err != nil || addr.Zone() != "" {
		return nil
	}
	for _, c := range [...]class{stays, drains} {
		for bits := addr.BitLen(); bits >= 0; bits-- {
			if n.bits[bits] == 0 {
				continue
			}
			r, _ := addr.Prefix(bits) // has no error for so many
			if m := n.groups[group{by: ByDestCIDR, within: r.Addr(), bits: bits}]; m != nil && len(m.lists[c]) > 0 {
				return m.lists[c]
			}
		}
	}
	return nil
}

// class is what an agent is in a group.
type class int

const (
	absent class = iota
	stays        // it has a tunnel that does not drain
	drains       // all of its tunnels drain
)

// members are the agents of a group.
type members struct {
	lists [drains + 1][]string // by class; of those that are absent there is none
	of    map[string]member
}

// member counts the tunnels of an agent in a group.
type member struct {
	tunnels, draining int
	at                int // its place in the list of its class
}

func (m member) class() class {
	switch m.tunnels {
	case 0:
		return absent
	case m.draining:
		return drains
	}
	return stays
}

func (m *members) count(id string, tunnels, draining int) {
	x := m.of[id]
	before := x.class()
	x.tunnels += tunnels
	x.draining += draining
	after := x.class()
	if before != after {
		m.remove(before, x.at)
		x.at = len(m.lists[after])
		if after != absent {
			m.lists[after] = append(m.lists[after], id)
		}
	}
	if m.of[id] = x; after == absent {
		delete(m.of, id)
	}
}

// remove puts the last one of a list into a place of it.
func (m *members) remove(from class, at int) {
	if from == absent {
		return
	}
	list := m.lists[from]
	last := list[len(list)-1]
	x := m.of[last]
	x.at, list[at] = at, last
	m.of[last] = x
	list[len(list)-1] = ""
	m.lists[from] = list[:len(list)-1]
}
