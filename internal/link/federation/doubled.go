// SPDX-License-Identifier: Apache-2.0

package federation

import (
	"fmt"

	"github.com/tombolo-io/tombolo/internal/link/doubled"
	"github.com/tombolo-io/tombolo/internal/link/reach"
)

// clashing are the nodes that have a key or an address of a node of another cluster, and why they do not count.
func clashing(all []doubled.Claim) map[reach.Name]string {
	out := map[reach.Name]string{}
	for _, l := range doubled.Find(all) {
		c := &all[l.Claim]
		name := reach.Name{Cluster: c.Cluster, Node: c.Node}
		if out[name] != "" {
			continue
		}
		if l.Holder < 0 {
			out[name] = fmt.Sprintf("the host cluster has noted of this object: %.300s; it counts when it is made anew, as by "+
				"'tombolo mesh keys rotate' on the node", c.Marked)
			continue
		}
		holder := &all[l.Holder]
		what := "key"
		if l.Address.IsValid() {
			what = fmt.Sprintf("address %s in the mesh", l.Address)
		}
		out[name] = fmt.Sprintf("it has the %s of node %s of %s", what, holder.Node, because(l.Why, c, holder))
	}
	return out
}

// because names the cluster of the node that counts, and says why that one does.
func because(why doubled.Why, c, holder *doubled.Claim) string {
	const of, second = "cluster %s, ", "which was there in the same second, and whose "
	switch why {
	case doubled.Own:
		return "this cluster"
	case doubled.Marked:
		return fmt.Sprintf(of+"and has lost it before", holder.Cluster)
	case doubled.Accepted:
		return fmt.Sprintf(of+"which is accepted, and cluster %s is not", holder.Cluster, c.Cluster)
	case doubled.Noted:
		return fmt.Sprintf(of+second+"order the host cluster has noted", holder.Cluster)
	case doubled.Named:
		return fmt.Sprintf(of+second+"name comes first", holder.Cluster)
	}
	return fmt.Sprintf(of+"which was there before", holder.Cluster)
}
