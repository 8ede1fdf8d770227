// SPDX-License-Identifier: Apache-2.0

package federation

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/link/doubled"
	"github.com/tombolo-io/tombolo/internal/link/reach"
)

// statedCluster is a cluster, and what its object says beside.
type statedCluster struct {
	reach.Cluster
	held   []netip.Prefix // for which the host cluster has accepted it
	stated []netip.Prefix // its own addresses, accepted or not
	spec   v1alpha1.ClusterSpec
}

// holders are ranges, and the clusters that have them.
type holders struct {
	of   map[netip.Prefix][]string
	bits []int // the lengths that there are, sorted
}

func newHolders() *holders { return &holders{of: map[netip.Prefix][]string{}} }

func (h *holders) add(cluster string, ranges ...netip.Prefix) {
	for _, p := range ranges {
		if !slices.Contains(h.of[p], cluster) {
			h.of[p] = append(h.of[p], cluster)
		}
		if i, there := slices.BinarySearch(h.bits, p.Bits()); !there {
			h.bits = slices.Insert(h.bits, i, p.Bits())
		}
	}
}

// other is a range that has an address and is another cluster's than the given one.
func (h *holders) other(a netip.Addr, cluster string) (netip.Prefix, string, bool) {
	for _, bits := range h.bits {
		p, err := a.Unmap().WithZone("").Prefix(bits)
		if err != nil {
			break // the longer ones are of IPv6
		}
		for _, c := range h.of[p] {
			if c != cluster {
				return p, c, true
			}
		}
	}
	return netip.Prefix{}, "", false
}

// judge says of nodes which do not count for the own cluster, and leaves out what they may not have: among it endpoints
// within ranges of others. Of an address that is in the range of one and an endpoint of another nothing would be sent.
//
//	self: the own cluster; empty: none is
//	own: its ranges, accepted or not
func judge(self string, own []netip.Prefix, clusters []statedCluster, nodes []statedNode) []statedNode {
	pods, inMesh, outside := map[string][]netip.Prefix{}, newHolders(), newHolders()
	for i := range clusters {
		c := &clusters[i]
		pods[c.Name] = c.Pods
		inMesh.add(c.Name, c.held...)
		for _, p := range c.held {
			outside.add(c.Name, c.Outside(p)) // what is mapped is reached by no other address from here
		}
	}
	for _, h := range []*holders{inMesh, outside} {
		h.add(self, own...)
		for i := range nodes {
			if n := &nodes[i]; n.Cluster == self {
				h.add(self, n.Pods...)
			}
		}
	}
	out := slices.Clone(nodes)
	claims := make([]doubled.Claim, 0, len(nodes))
	for i := range out {
		n := &out[i]
		n.Pods = within(n.Pods, pods[n.Cluster])
		_, n.accepted = pods[n.Cluster]
		if f := &n.said.Facts; n.Cluster != self {
			f.Endpoints = slices.DeleteFunc(slices.Clone(f.Endpoints), func(e member.Endpoint) bool {
				_, _, found := outside.other(e.Addr.Addr(), n.Cluster)
				return found
			})
		}
		c := n.claim(self)
		if n.Doubled = inRange(c, self, inMesh); n.Doubled == "" { // what does not count keeps nobody out
			claims = append(claims, c)
		}
	}
	why := clashing(claims)
	for i := range out {
		if n := &out[i]; n.Doubled == "" {
			n.Doubled = why[n.Name]
		}
	}
	return out
}

// inRange says why a node's address in the mesh keeps it from counting: it would come before the range of another
// cluster. The own nodes are the own cluster's matter.
func inRange(c doubled.Claim, self string, h *holders) string {
	for _, a := range c.Addresses {
		p, of, found := h.other(a, c.Cluster)
		if !found || c.Own {
			continue
		}
		if of = "cluster " + of; of == "cluster "+self {
			of = "this cluster"
		}
		return fmt.Sprintf("its address %s in the mesh is in %s of %s", a, p, of)
	}
	return ""
}
