// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/tombolo-io/tombolo/internal/base/member"
)

// ownCluster is the cluster that this node belongs to, by its configuration.
type ownCluster struct {
	id      string   // cluster.id; empty: none
	secrets []string // ids of its secrets, the newest first
}

// name is the configured id; without one, the id of the oldest secret.
func (c ownCluster) name() string { return cmp.Or(c.id, c.secrets[len(c.secrets)-1]) }

// named is the prefix that the configured id makes; not valid: there is no id.
func (c ownCluster) named() netip.Prefix {
	if c.id == "" {
		return netip.Prefix{}
	}
	return member.Overlay6(c.id)
}

// choice is what the overlay addresses depend on, as far as the cluster decides.
func (c ownCluster) choice() choice {
	return choice{
		clusters: c.secrets, named: c.named(), derived: member.Overlay6(c.secrets[len(c.secrets)-1]),
	}
}

// ranHere reports whether an earlier run was a member of this cluster, with one of its secrets and its id. Such a node
// comes up as it was, and waits for nobody.
func (c ownCluster) ranHere(before trace) bool {
	named := c.named()
	return slices.ContainsFunc(before.Clusters, func(id string) bool { return slices.Contains(c.secrets, id) }) &&
		(!named.IsValid() || named == before.Prefix)
}
