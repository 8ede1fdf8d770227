// SPDX-License-Identifier: Apache-2.0

package accept

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/tombolo-io/tombolo/internal/link/doubled"
)

// The strengths of claims.
const (
	asked   = iota // by a cluster that is not accepted
	added          // by one that is accepted, for other ranges
	address        // of a node of one that is accepted
	had            // accepted for it
)

func (d *decision) strength(c *claim) int {
	switch {
	case !d.clusters[c.cluster].Accepted:
		return asked
	case c.kind == ofNode:
		return address
	case c.held:
		return had
	}
	return added
}

// conflict is between two claims of different clusters.
type conflict struct {
	winner, loser *claim
	strength      int // of the winner
}

// settle refuses one of each two clusters that cannot both be accepted.
func (d *decision) settle() {
	found := d.conflicts()
	slices.SortFunc(found, func(a, b conflict) int {
		return cmp.Or(cmp.Compare(b.strength, a.strength), d.older(a.winner.cluster, b.winner.cluster),
			d.older(a.loser.cluster, b.loser.cluster))
	})
	for _, c := range found {
		w, l := c.winner, c.loser
		if d.out[w.cluster].Reason != "" {
			continue // it keeps nobody out
		}
		because := "is older"
		switch loser := d.strength(l); {
		case c.strength > loser && c.strength == had:
			because = "was accepted for that before"
		case c.strength > loser && c.strength == address:
			because = "has that node already"
		case c.strength > loser:
			because = "was accepted before"
		}
		winner, name := d.clusters[w.cluster].Name, d.clusters[l.cluster].Name
		d.refuse(l.cluster, Overlap, "%s of cluster %s and %s of cluster %s overlap, and cluster %s %s: %s", l, name, w,
			winner, winner, because, remedy(c, winner, name))
	}
}

// remedy says what to do about a conflict.
func remedy(c conflict, winner, loser string) string {
	w, l := c.winner, c.loser
	switch {
	case w.kind == ofNode || l.kind == ofNode:
		return "use another range"
	case l.from.IsValid():
		return "map to another range with globalCIDRsMap of cluster " + loser
	case l.kind == inside && !w.from.IsValid():
		return "map the range of cluster " + winner + " too, with its globalCIDRsMap"
	case w.kind == inside:
		return "map the range of cluster " + loser + " too, with its globalCIDRsMap"
	case w.from.IsValid():
		return "map to another range with globalCIDRsMap of cluster " + winner
	}
	return "use another range, or map those of both with their globalCIDRsMap"
}

// conflicts are those between clusters that are not refused yet, at most one for each winner and loser. Of two ranges
// that overlap one covers the other, so each claim meets those that cover it while all are gone through in order.
func (d *decision) conflicts() []conflict {
	var all []*claim
	for i := range d.claims {
		if d.out[i].Reason != "" {
			continue
		}
		for k := range d.claims[i] {
			all = append(all, &d.claims[i][k])
		}
	}
	slices.SortFunc(all, func(a, b *claim) int {
		return cmp.Or(compare(a.prefix, b.prefix), cmp.Compare(a.cluster, b.cluster), cmp.Compare(a.kind, b.kind),
			strings.Compare(a.what, b.what))
	})
	best := map[[2]int]conflict{}
	var open []*claim // that cover what comes
	for _, c := range all {
		for len(open) > 0 && !covers(open[len(open)-1].prefix, c.prefix) {
			open = open[:len(open)-1]
		}
		repeated := false
		for _, o := range open {
			repeated = repeated || o.cluster == c.cluster && o.kind == c.kind && o.held == c.held
			if o.cluster == c.cluster || o.kind == inside && c.kind == inside || o.kind == ofNode && c.kind == ofNode {
				continue
			}
			x := d.between(o, c)
			at := [2]int{x.winner.cluster, x.loser.cluster}
			if is, there := best[at]; !there || x.strength > is.strength {
				best[at] = x
			}
		}
		if !repeated { // else what it covers meets the wider one too
			open = append(open, c)
		}
	}
	out := make([]conflict, 0, len(best))
	for _, c := range best {
		out = append(out, c)
	}
	return out
}

func (d *decision) between(a, b *claim) conflict {
	x, y := d.strength(a), d.strength(b)
	if c := cmp.Or(cmp.Compare(y, x), d.older(a.cluster, b.cluster)); c > 0 {
		return conflict{b, a, y}
	}
	return conflict{a, b, x}
}

// doubled warns about nodes of two clusters that have the same key or address: packets for one of them would be the
// other one's. The one that does not count at nodes is named, and to be marked if it came later.
func (d *decision) doubled() {
	var all []doubled.Claim
	var of []int // the cluster of each
	for i := range d.clusters {
		c, accepted := &d.clusters[i], d.verdict(i).Accepted
		for _, n := range c.Nodes {
			all = append(all, doubled.Claim{Cluster: c.Name, Node: n.Name, Accepted: accepted, Created: n.Created,
				Order: n.Order, Marked: n.Marked, Key: n.Key, Addresses: n.Overlay})
			of = append(of, i)
		}
	}
	told := map[int]int{}
	for _, l := range doubled.Find(all) {
		i, c, why := of[l.Claim], &all[l.Claim], ""
		if l.Holder < 0 {
			why = "is marked, and does not count: " + c.Marked
		} else {
			why = has(c, &all[l.Holder], l.Address)
		}
		if l.Later && c.Marked == "" && d.out[i].Mark[c.Node] == "" {
			if d.out[i].Mark == nil {
				d.out[i].Mark = map[string]string{}
			}
			d.out[i].Mark[c.Node] = "it " + why
		}
		if told[i]++; told[i] <= mostWarnings {
			d.warn(i, fmt.Sprintf("node %s of cluster %s %s", c.Node, c.Cluster, why))
		}
	}
}

// has says what a node has that is another one's.
//
//	a: the address; not valid: it is the key
func has(c, holder *doubled.Claim, a netip.Addr) string {
	what, value := "public key", c.Key
	if a.IsValid() {
		what, value = "address", a.String()
	}
	return fmt.Sprintf("has the %s of node %s of cluster %s, %s", what, holder.Node, holder.Cluster, value)
}
