// SPDX-License-Identifier: Apache-2.0

package share

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"time"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
)

// candidate is a node that may be a gateway.
type candidate struct {
	Node
	gateway  bool // it is one
	away     bool // it was not ready at the last decision
	since    time.Time
	doubtful bool // it was cut off as a gateway
	weight   uint64
}

// elect decides which nodes are gateways. One stays it while it is ready, and for a while after; new ones are those
// that fit best by a hash of their names, so that the order in which nodes come makes no difference (highest random
// weight). While no gateway is ready there is another one at once: nothing of a cluster would be reached. One in doubt
// gives its role to a node that is not, and keeps it where there is none: then it is the other clusters that are away.
func (out *Shared) elect(f Facts, nodes []Node, before map[string]v1alpha1.ClusterNodeSpec) {
	out.Away = map[string]time.Time{}
	all := f.candidates(nodes, before)
	out.doubt(f, all)
	slices.SortFunc(all, candidate.compare)
	ready := 0
	for _, c := range all {
		switch {
		case c.gateway && !c.Ready:
			out.Away[c.Name] = c.since
			out.sooner(c.since.Add(Grace))
		case c.gateway && ready < f.Gateways, c.Ready && (ready == 0 || len(out.Gateways) < f.Gateways):
			ready++
		default:
			if d := out.Doubts[c.Name]; c.gateway && c.doubtful {
				d = d.rest(f.Now)
				out.Doubts[c.Name] = d
				out.sooner(d.At.Add(d.Rest))
			}
			continue
		}
		out.Gateways = append(out.Gateways, c.Name)
	}
	slices.Sort(out.Gateways)
}

// candidates are the nodes that may be gateways.
func (f Facts) candidates(nodes []Node, before map[string]v1alpha1.ClusterNodeSpec) (out []candidate) {
	for _, n := range nodes {
		if f.Members[n.Name].PublicKey == "" || !has(n.Labels, f.Selector) {
			continue
		}
		n.Ready = n.Ready && !n.Silent
		c := candidate{Node: n, gateway: slices.Contains(before[n.Name].Roles, v1alpha1.RoleGateway),
			weight: weight(f.Cluster, n.Name)}
		c.since, c.away = f.Away[n.Name]
		if c.gateway && !n.Ready {
			if !c.away {
				c.since = f.Now
			}
			c.gateway = f.Now.Before(c.since.Add(Grace))
		}
		out = append(out, c)
	}
	return out
}

// compare puts first whichever is the better gateway: those that are it and ready, those that just came back, those
// that are not ready, and then others. Those in doubt are the last of those that are ready.
func (c candidate) compare(o candidate) int {
	return cmp.Or(cmp.Compare(o.rank(), c.rank()), cmp.Compare(o.weight, c.weight), cmp.Compare(c.Name, o.Name))
}

func (c candidate) rank() int {
	switch {
	case c.gateway && c.Ready && !c.doubtful && !c.away:
		return 6
	case c.gateway && c.Ready && !c.doubtful:
		return 5
	case c.gateway && !c.Ready:
		return 4
	case c.Ready && !c.doubtful:
		return 3
	case c.gateway:
		return 2
	case c.Ready:
		return 1
	}
	return 0
}

// has reports whether labels are as a selector wants them.
func has(labels, selector map[string]string) bool {
	for k, want := range selector {
		if got, ok := labels[k]; !ok || got != want {
			return false
		}
	}
	return true
}

// weight is how well a node fits as a gateway of its cluster.
func weight(cluster, node string) uint64 {
	sum := sha256.Sum256([]byte(cluster + "." + node + "\x00gateway"))
	return binary.BigEndian.Uint64(sum[:8])
}
