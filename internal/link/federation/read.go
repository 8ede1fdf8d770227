// SPDX-License-Identifier: Apache-2.0

package federation

import (
	"encoding/json"
	"net/netip"
	"time"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/link/doubled"
	"github.com/tombolo-io/tombolo/internal/link/reach"
)

// Read is what nodes understand of objects: those that count, in their order, and why others do not. Self is not set.
//
//	clusters, nodes: JSON of Clusters and ClusterNodes
func Read(clusters, nodes []json.RawMessage) (v reach.View, problems []string) {
	var claims []doubled.Claim
	pods := map[string][]netip.Prefix{}
	for _, raw := range clusters {
		c, err := readCluster(raw)
		if err != nil {
			problems = append(problems, fault.From(err).Explain())
			continue
		}
		v.Clusters = append(v.Clusters, c)
		pods[c.Name] = c.Pods
	}
	for _, raw := range nodes {
		n, err := readNode(raw, time.Time{})
		if err != nil {
			problems = append(problems, fault.From(err).Explain())
			continue
		}
		n.Pods = within(n.Pods, pods[n.Cluster])
		v.Nodes = append(v.Nodes, n.Node)
		_, accepted := pods[n.Cluster]
		claims = append(claims, n.claim("", accepted))
	}
	why := clashing(claims)
	for i := range v.Nodes {
		n := &v.Nodes[i]
		if n.Doubled = why[n.Name]; n.Doubled != "" {
			problems = append(problems, fault.From(refused(v1alpha1.KindClusterNode, n.String(), "%s", n.Doubled)).Explain())
		}
	}
	return v, problems
}
