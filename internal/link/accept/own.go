// SPDX-License-Identifier: Apache-2.0

package accept

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/tombolo-io/tombolo/internal/route/mapping"
)

// kind is what a claim is about.
type kind int

const (
	visible kind = iota // other clusters reach the cluster by it
	inside              // of its own addresses; others reach them by other ones
	ofNode              // the address of a node in the mesh
)

// claim is a range that is a cluster's.
type claim struct {
	prefix  netip.Prefix
	cluster int
	kind    kind
	held    bool         // it was accepted for it before
	what    string       // pods, services, node n1
	from    netip.Prefix // the cluster's own range, of one that is mapped
}

func (c *claim) String() string {
	switch {
	case c.kind == ofNode:
		return fmt.Sprintf("the address %s of %s", c.prefix.Addr(), c.what)
	case c.from.IsValid():
		return fmt.Sprintf("%s (mapped from %s)", c.prefix, c.from)
	}
	return fmt.Sprintf("%s %s", c.what, c.prefix)
}

// reserved says why a range may be no cluster's, or "". Package topology, which refuses the same, stands on this floor.
func reserved(p netip.Prefix) string {
	switch {
	case !p.IsValid() || p != p.Masked() || p.Addr().Is4In6():
		return "no range"
	case p.Bits() == 0:
		return "the default route"
	}
	for _, s := range []struct{ within, what string }{
		{"0.0.0.0/8", "this network"}, {"127.0.0.0/8", "loopback"}, {"169.254.0.0/16", "link-local"},
		{"224.0.0.0/4", "multicast"}, {"255.255.255.255/32", "broadcast"},
		{"::/127", "loopback"}, {"fe80::/10", "link-local"}, {"ff00::/8", "multicast"},
	} {
		if p.Overlaps(netip.MustParsePrefix(s.within)) {
			return fmt.Sprintf("%s, or covers it", s.what)
		}
	}
	return ""
}

// pool is where nodes have their IPv4 addresses in the mesh, unless they are told otherwise.
func pool() netip.Prefix { return netip.MustParsePrefix("100.112.0.0/12") }

func inPool(c Cluster) bool {
	within := func(n Node) bool { return slices.ContainsFunc(n.Overlay, pool().Contains) }
	return !c.Gone && slices.ContainsFunc(c.Nodes, within)
}

// own finds the claims of a cluster, and refuses what no other cluster is needed for.
func (d *decision) own(i int) {
	c := &d.clusters[i]
	if c.Broken != "" {
		d.refuse(i, Invalid, "cluster %s: %s", c.Name, c.Broken)
	}
	var real []claim
	for _, r := range []struct {
		ranges []netip.Prefix
		what   string
	}{{c.Pods, "pods"}, {c.Services, "services"}} {
		for _, p := range r.ranges {
			real = append(real, claim{prefix: p, cluster: i, what: r.what})
		}
	}
	real = append(real, d.nodes(i)...)
	if n := len(real) + len(c.Mapped); n > MostClaims {
		d.refuse(i, Invalid, "cluster %s has %d ranges, at most %d are allowed", c.Name, n, MostClaims)
		return
	}
	for k := range real {
		if isMapped(real[k].prefix, c.Mapped) {
			real[k].kind = inside
		}
	}
	all := slices.Concat(real, d.mapped(i, real))
	for k := range all {
		p := all[k].prefix
		if why := reserved(p); why != "" {
			d.refuse(i, Invalid, "cluster %s has %s: that is %s", c.Name, &all[k], why)
		}
		// A range that others reached by another one was never the cluster's towards them.
		all[k].held = c.Accepted && within(p, c.Held) && (all[k].kind == inside || !isMapped(p, c.Was))
		if !all[k].held && p.Overlaps(pool()) && d.pooled {
			d.refuse(i, Invalid, "cluster %s has %s: that is in %s, where nodes have their addresses in the mesh", c.Name,
				&all[k], pool())
		}
	}
	d.claims[i] = append(all, d.addresses(i)...)
}

func isMapped(p netip.Prefix, all []mapping.Range) bool {
	return slices.ContainsFunc(all, func(m mapping.Range) bool { return covers(m.There, p) })
}

// nodes are the ranges of nodes that are in none of the cluster: others would send there too.
func (d *decision) nodes(i int) (claims []claim) {
	c := &d.clusters[i]
	var odd []string
	for k := range c.Nodes {
		n := &c.Nodes[k]
		for _, p := range n.Pods {
			if within(p, c.Pods) {
				continue
			}
			claims = append(claims, claim{prefix: p, cluster: i, what: "pods of node " + n.Name})
			if len(c.Pods) > 0 && !within(p, c.Unlinked) {
				odd = append(odd, fmt.Sprintf("node %s has pods in %s, which is in no range of pods of cluster %s", n.Name, p,
					c.Name))
			}
		}
	}
	slices.Sort(odd)
	if more := len(odd) - mostWarnings; more > 0 {
		odd = append(odd[:mostWarnings], fmt.Sprintf("%d more ranges of nodes of cluster %s are in none of its pods", more,
			c.Name))
	}
	d.warn(i, odd...)
	return claims
}

func (d *decision) warn(i int, why ...string) { d.out[i].Warnings = append(d.out[i].Warnings, why...) }

// mostWarnings is how many of one sort are told of a cluster.
const mostWarnings = 8

// mapped are the ranges by which others reach a cluster instead of its own, also of those that nobody has learned yet.
func (d *decision) mapped(i int, real []claim) (claims []claim) {
	c := &d.clusters[i]
	for k, m := range c.Mapped {
		if m.There.Bits() != m.Here.Bits() || m.There.Addr().Is4() != m.Here.Addr().Is4() {
			d.refuse(i, Invalid, "cluster %s maps %s to %s, which is of another size or IP version", c.Name, m.There, m.Here)
		}
		if meets := func(r claim) bool { return r.prefix.Overlaps(m.There) }; !slices.ContainsFunc(real, meets) {
			d.warn(i, fmt.Sprintf("cluster %s maps %s, which is none of its ranges", c.Name, m.There))
		}
		for _, r := range real {
			if m.Here.Overlaps(r.prefix) {
				d.refuse(i, Invalid, "cluster %s maps %s to %s, which meets its own %s", c.Name, m.There, m.Here, &r)
			}
		}
		if o := first(c.Mapped[:k], m); o >= 0 {
			d.refuse(i, Invalid, "cluster %s maps both %s to %s and %s to %s, which meet", c.Name, c.Mapped[o].There,
				c.Mapped[o].Here, m.There, m.Here)
		}
		claims = append(claims, claim{prefix: m.Here, cluster: i, what: "mapped", from: m.There})
	}
	return claims
}

func first(all []mapping.Range, m mapping.Range) int {
	return slices.IndexFunc(all, func(o mapping.Range) bool { return o.Here.Overlaps(m.Here) })
}

// addresses are those of a cluster's nodes in the mesh, where each one comes before all ranges.
func (d *decision) addresses(i int) (claims []claim) {
	c := &d.clusters[i]
	for k := range c.Nodes {
		for _, a := range c.Nodes[k].Overlay {
			claims = append(claims, claim{prefix: netip.PrefixFrom(a, a.BitLen()), cluster: i, kind: ofNode,
				what: "node " + c.Nodes[k].Name})
		}
	}
	return claims
}
