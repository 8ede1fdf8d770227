// SPDX-License-Identifier: Apache-2.0

// Package doubled decides which of several nodes holds a key or an address in the mesh that nodes of different clusters
// claim. Nodes and the host cluster decide alike by it. It does not know which objects the claims come from, and has no
// words for people.
package doubled

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

// Claim is what a node says is its own.
type Claim struct {
	Cluster, Node string
	Own           bool      // it is of the cluster that asks
	Accepted      bool      // the host cluster has accepted its cluster
	Created       time.Time // of its object, to the second
	Order         uint64    // of its object among those of the host cluster; 0: it is not noted
	Marked        string    // why its object lost to another one once; empty: it did not
	Key           string    // public; empty: none
	Addresses     []netip.Addr
}

// Why is what decides between two claims.
type Why int

// The reasons, in the order in which they are looked at.
const (
	Own      Why = iota // one is of the cluster that asks, which no other cluster speaks for
	Marked              // one has lost before, whoever it lost to
	Accepted            // one is of a cluster that is accepted
	Earlier             // the host cluster got one before
	Noted               // of two of one second the host cluster has noted the order of one only
	Named               // of two of one second no order is noted: names decide
)

// Loss is a claim to what another node holds. The node does not count then.
type Loss struct {
	Claim, Holder int        // in what was given; no holder (-1): the claim is marked, and nobody else has what it claims
	Address       netip.Addr // not valid: it is the key
	Why           Why
	Later         bool // the claim came after that of the holder, whatever has decided
}

// Find gives what is claimed though a node of another cluster holds it: first the losses of the claims that come first.
// What a node that does not count claims keeps nobody out. Two nodes of one cluster are that cluster's own matter. One
// that is marked does not count for other clusters, whether somebody else has what it claims or not: else it would wait
// for the moment in which the other one is made anew.
func Find(all []Claim) (out []Loss) {
	order := make([]int, len(all))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, k int) int {
		c, _ := compare(&all[i], &all[k])
		return c
	})
	keys, addresses := map[string]int{}, map[netip.Addr]int{}
	for _, i := range order {
		c, counts := &all[i], true
		look := func(holder int, there bool, a netip.Addr) {
			if !there || all[holder].Cluster == c.Cluster {
				return
			}
			_, why := compare(&all[holder], c)
			out, counts = append(out, Loss{i, holder, a, why, later(c, &all[holder])}), false
		}
		if c.Key != "" {
			holder, there := keys[c.Key]
			look(holder, there, netip.Addr{})
		}
		for _, a := range c.Addresses {
			holder, there := addresses[a]
			look(holder, there, a)
		}
		if counts && c.Marked != "" && !c.Own {
			out, counts = append(out, Loss{Claim: i, Holder: -1, Why: Marked}), false
		}
		if !counts {
			continue
		}
		if _, there := keys[c.Key]; !there {
			keys[c.Key] = i
		}
		for _, a := range c.Addresses {
			if _, there := addresses[a]; !there {
				addresses[a] = i
			}
		}
	}
	return out
}

// Before reports whether a claim is known to come before another one, if both are for the same: it then does so too
// when other objects of their clusters are gone.
func Before(c, other Claim) bool {
	same := c.Key != "" && c.Key == other.Key ||
		slices.ContainsFunc(c.Addresses, func(a netip.Addr) bool { return slices.Contains(other.Addresses, a) })
	return !same || other.Marked != "" || later(&other, &c)
}

// compare says which of two claims comes first, and by what.
func compare(a, b *Claim) (int, Why) {
	switch {
	case a.Own != b.Own:
		return first(a.Own), Own
	case (a.Marked == "") != (b.Marked == ""):
		return first(a.Marked == ""), Marked
	case a.Accepted != b.Accepted:
		return first(a.Accepted), Accepted
	case !a.Created.Equal(b.Created):
		return a.Created.Compare(b.Created), Earlier
	case (a.Order == 0) != (b.Order == 0):
		return first(a.Order != 0), Noted
	case a.Order != b.Order:
		return cmp.Compare(a.Order, b.Order), Earlier
	}
	return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Node, b.Node)), Named
}

// later reports whether a claim is known to have come after another one: of two of one second, if both orders are.
func later(c, other *Claim) bool {
	if !c.Created.Equal(other.Created) {
		return c.Created.After(other.Created)
	}
	return other.Order != 0 && c.Order > other.Order
}

func first(is bool) int {
	if is {
		return -1
	}
	return 1
}
