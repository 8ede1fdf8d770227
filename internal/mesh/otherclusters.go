// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
	"github.com/tombolo-io/tombolo/internal/mesh/topology"
)

// sameSecret are the peers that are not known to have another secret, whose prefix is their own.
func sameSecret(peers topology.Peers, members map[string]*roster.Member, secrets []string) topology.Peers {
	return slices.DeleteFunc(slices.Clone(peers), func(p topology.Peer) bool {
		return hasOtherSecret(members[p.ID], secrets)
	})
}

// otherPrefixes warns of peers with overlay addresses of another cluster's name: all have one
// secret, so they are one network, but somebody's cluster.id is a mistake. An address that
// an operator has chosen is of no name.
func otherPrefixes(own netip.Prefix, peers topology.Peers) []string {
	nodes := map[netip.Prefix][]string{}
	for _, p := range peers {
		if !p.Overlay6.IsValid() {
			continue
		}
		in := netip.PrefixFrom(p.Overlay6, 64).Masked()
		if in != own && member.IsOverlay6(in) {
			nodes[in] = append(nodes[in], p.Node)
		}
	}
	var out []string
	for in, names := range nodes {
		slices.Sort(names)
		more := ""
		if len(names) > limit.MeshNames {
			more = fmt.Sprintf(" and %d more", len(names)-limit.MeshNames)
			names = names[:limit.MeshNames]
		}
		out = append(out, fmt.Sprintf("overlay addresses of %s%s are in %s, those of this node in %s: "+
			"cluster.id, from which the prefix is made, should be the same on all nodes",
			strings.Join(names, ", "), more, in, own))
	}
	slices.Sort(out)
	return out
}
