// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/link/reach"
	"github.com/tombolo-io/tombolo/internal/mesh/topology"
)

// crowd is a federation with gateways, and the members that the first node of the first cluster knows.
func crowd(clusters, nodes int) (v reach.View, members []member.Facts) {
	v.Self = reach.Name{Cluster: "c0", Node: "n0"}
	for c := range clusters {
		name := fmt.Sprintf("c%d", c)
		at := netip.AddrFrom4([4]byte{10, byte(c), 0, 0})
		v.Clusters = append(v.Clusters, reach.Cluster{Name: name, Gateway: true, Pods: []netip.Prefix{netip.PrefixFrom(at, 16)}})
		for n := range nodes {
			var key member.Key
			binary.BigEndian.PutUint32(key[:], uint32(c*nodes+n+1))
			node := reach.Node{Name: reach.Name{Cluster: name, Node: fmt.Sprintf("n%d", n)}, Key: key, Ready: true, Gateway: n < 2,
				Pods: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(c), byte(n), 0}), 24)}}
			v.Nodes = append(v.Nodes, node)
			m := member.Facts{ID: node.String(), Node: node.String(), Key: key,
				Overlay4: netip.AddrFrom4([4]byte{100, 112, byte(c), byte(n)})}
			if name == v.Self.Cluster {
				m.Node, m.Nodename = node.Node, node.Node
			}
			if node.Name != v.Self {
				members = append(members, m)
			}
		}
	}
	return v, members
}

// BenchmarkOneNodeChanges is what a gateway does when a node of another cluster becomes ready or not: all that it plans.
func BenchmarkOneNodeChanges(b *testing.B) {
	for _, clusters := range []int{2, 10, 100} {
		b.Run(fmt.Sprintf("%d clusters of 100", clusters), func(b *testing.B) {
			v, members := crowd(clusters, 100)
			now := time.Unix(1e9, 0)
			l := linked{}.look(v, members, nil, now)
			own := members[0].Key
			binary.BigEndian.PutUint32(own[:], 1)
			for b.Loop() {
				n := &v.Nodes[len(v.Nodes)-1]
				n.Ready = !n.Ready
				in := topology.Input{Self: member.Facts{ID: "self", Node: "n0", Nodename: "n0", Key: own}, Members: members,
					Options: topology.Options{Link: "tombolo0", MTU: 1420, Filter: "tombolo", Table: 180, Rule: 180,
						Overlay6: netip.MustParsePrefix("fd00::/64"), Accept: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}}}
				l = l.look(v, in.Members, nil, now)
				l.give(&in)
				if _, peers, problems := topology.Plan(in); len(peers) < 99 || len(problems) > 0 {
					b.Fatalf("%d peers, %v", len(peers), problems)
				}
			}
		})
	}
}
