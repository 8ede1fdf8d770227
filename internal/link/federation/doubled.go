// SPDX-License-Identifier: Apache-2.0

package federation

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/link/reach"
)

// claim is what a node says is its own.
type claim struct {
	reach.Name
	counts   bool      // its cluster does: the host cluster has accepted it
	created  time.Time // of its object
	key      member.Key
	overlays []netip.Addr
}

// doubled are the nodes that have a key or an address of a node of another cluster, and why they do not count: another
// cluster cannot speak of nodes of the own one, nor of those that were there before, and one that is not accepted has
// no say against those that are. Two nodes of one cluster are that cluster's own matter.
func doubled(self string, all []claim) map[reach.Name]string {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b claim) int {
		if own := (a.Cluster == self) != (b.Cluster == self); own {
			if a.Cluster == self {
				return -1
			}
			return 1
		}
		if a.counts != b.counts {
			if a.counts {
				return -1
			}
			return 1
		}
		return cmp.Or(a.created.Compare(b.created), cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Node, b.Node))
	})
	keys, addresses := map[member.Key]reach.Name{}, map[netip.Addr]reach.Name{}
	out := map[reach.Name]string{}
	for _, c := range all {
		if at, there := keys[c.key]; there && at.Cluster != c.Cluster {
			out[c.Name] = of("key", at, self)
		}
		for _, a := range c.overlays {
			if at, there := addresses[a]; there && at.Cluster != c.Cluster && out[c.Name] == "" {
				out[c.Name] = of(fmt.Sprintf("address %s in the mesh", a), at, self)
			}
		}
		if out[c.Name] != "" {
			continue // what does not count keeps nobody out
		}
		if _, there := keys[c.key]; !there && !c.key.IsZero() {
			keys[c.key] = c.Name
		}
		for _, a := range c.overlays {
			if _, there := addresses[a]; !there {
				addresses[a] = c.Name
			}
		}
	}
	return out
}

func of(what string, at reach.Name, self string) string {
	if at.Cluster == self {
		return fmt.Sprintf("it has the %s of node %s of this cluster", what, at.Node)
	}
	return fmt.Sprintf("it has the %s of node %s of cluster %s, which was there before", what, at.Node, at.Cluster)
}
