// SPDX-License-Identifier: Apache-2.0

package accept

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/tombolo-io/tombolo/internal/route/mapping"
)

// The reasons of a verdict.
const (
	Distinct  = "Distinct"  // accepted
	Overlap   = "Overlap"   // refused: another cluster has a range
	Invalid   = "Invalid"   // refused, whatever other clusters have
	Unlearned = "Unlearned" // neither: the ranges are not known yet
)

// MostClaims bounds the ranges of a cluster, its own and those by which others reach them.
const MostClaims = 1024

// Cluster is what is known of a cluster.
type Cluster struct {
	Name    string
	Created time.Time
	// Held are the ranges for which the cluster was accepted, if it was, and Was what was mapped then.
	Accepted bool
	Held     []netip.Prefix
	Was      []mapping.Range
	// Pods and Services are its ranges, by its own addresses, without those of a family that is not linked. Unlinked are
	// those.
	Pods, Services, Unlinked []netip.Prefix
	Mapped                   []mapping.Range // as globalCIDRsMap has them
	Nodes                    []Node
	Gone                     bool   // it has no object: only what its nodes claim is looked at, and it is not accepted
	Broken                   string // what of its object cannot be read; empty: nothing
}

// Node is a node of a cluster.
type Node struct {
	Name    string
	Created time.Time
	Order   uint64         // of its object among those of one second; 0: it is not noted
	Marked  string         // why its object lost to another cluster's once; empty: it did not
	Pods    []netip.Prefix // by its cluster's own addresses
	Overlay []netip.Addr
	Key     string // public
}

// Verdict is what is decided about a cluster.
type Verdict struct {
	Accepted bool
	Reason   string
	Why      string
	Mapped   []mapping.Range // in force
	Holds    []netip.Prefix  // for which it is accepted
	Warnings []string
	Mark     map[string]string // nodes that lost to an earlier one of another cluster, and why
}

// Decide judges all clusters, in the order in which they are given. What is refused because of a cluster that is
// refused itself may be accepted when it is decided again, with these verdicts.
func Decide(clusters []Cluster) []Verdict {
	order := make([]int, len(clusters))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return strings.Compare(clusters[a].Name, clusters[b].Name) })
	d := decision{claims: make([][]claim, len(clusters)), out: make([]Verdict, len(clusters))}
	for _, i := range order {
		d.clusters = append(d.clusters, sorted(clusters[i]))
	}
	d.pooled = slices.ContainsFunc(d.clusters, inPool)
	for i := range d.clusters {
		if !d.clusters[i].Gone {
			d.own(i)
		}
	}
	d.settle()
	d.doubled()
	out := make([]Verdict, len(clusters))
	for k, i := range order {
		out[i] = d.verdict(k)
	}
	return out
}

// sorted is a cluster whose lists do not depend on the order in which they are given, without ranges that are mapped to
// themselves. The most specific range that is mapped comes first.
func sorted(c Cluster) Cluster {
	c.Pods, c.Services = slices.Clone(c.Pods), slices.Clone(c.Services)
	slices.SortFunc(c.Pods, compare)
	slices.SortFunc(c.Services, compare)
	c.Mapped = slices.DeleteFunc(slices.Clone(c.Mapped), func(m mapping.Range) bool { return !m.Mapped() })
	slices.SortFunc(c.Mapped, func(a, b mapping.Range) int {
		return cmp.Or(cmp.Compare(b.There.Bits(), a.There.Bits()), compare(a.There, b.There), compare(a.Here, b.Here))
	})
	c.Nodes = slices.Clone(c.Nodes)
	slices.SortFunc(c.Nodes, func(a, b Node) int { return strings.Compare(a.Name, b.Name) })
	return c
}

func (d *decision) verdict(i int) Verdict {
	c, v := &d.clusters[i], d.out[i]
	slices.Sort(v.Warnings)
	switch {
	case v.Reason != "":
	case c.Gone || len(c.Pods)+len(c.Services)+len(c.Unlinked) == 0:
		v.Reason, v.Why = Unlearned, fmt.Sprintf("the ranges of cluster %s are not known yet", c.Name)
	default:
		v.Accepted, v.Reason, v.Holds = true, Distinct, holds(d.claims[i])
		v.Why = fmt.Sprintf("no range of cluster %s meets one of another cluster", c.Name)
		v.Mapped = slices.Clone(c.Mapped)
		slices.SortFunc(v.Mapped, func(a, b mapping.Range) int { return compare(a.There, b.There) })
	}
	return v
}

type decision struct {
	clusters []Cluster // by name
	claims   [][]claim // of each cluster
	out      []Verdict // with a reason: refused
	pooled   bool      // nodes have addresses of the mesh's pool
}

// older compares two clusters by age.
func (d *decision) older(a, b int) int {
	x, y := &d.clusters[a], &d.clusters[b]
	return cmp.Or(x.Created.Compare(y.Created), strings.Compare(x.Name, y.Name))
}

func (d *decision) refuse(i int, reason, why string, args ...any) {
	if v := &d.out[i]; v.Reason == "" {
		v.Reason, v.Why = reason, fmt.Sprintf(why, args...)
	}
}

// holds are the ranges of a cluster, without those that others cover.
func holds(claims []claim) (out []netip.Prefix) {
	for _, c := range claims {
		if c.kind != ofNode {
			out = append(out, c.prefix)
		}
	}
	slices.SortFunc(out, compare)
	at := 0
	for _, p := range out { // a range comes after those that cover it
		if at == 0 || !covers(out[at-1], p) {
			out[at] = p
			at++
		}
	}
	return out[:at:at]
}

// compare sorts ranges so that each comes after those that cover it, and all that it covers after it.
func compare(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}

func covers(a, b netip.Prefix) bool { return a.Bits() <= b.Bits() && a.Contains(b.Addr()) }

func within(p netip.Prefix, ranges []netip.Prefix) bool {
	return slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return covers(r, p) })
}
