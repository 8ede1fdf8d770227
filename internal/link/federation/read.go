// SPDX-License-Identifier: Apache-2.0

package federation

import (
	"encoding/json"
	"time"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/link/reach"
)

// Read is what nodes understand of objects: those that count, in their order, and why others do not. Self is not set.
//
//	clusters, nodes: JSON of Clusters and ClusterNodes
func Read(clusters, nodes []json.RawMessage) (v reach.View, problems []string) {
	var known []statedCluster
	for _, raw := range clusters {
		c, err := readCluster(raw)
		if err != nil {
			problems = append(problems, fault.From(err).Explain())
			continue
		}
		known, v.Clusters = append(known, c), append(v.Clusters, c.Cluster)
	}
	var stated []statedNode
	for _, raw := range nodes {
		n, err := readNode(raw, time.Time{})
		if err != nil {
			problems = append(problems, fault.From(err).Explain())
			continue
		}
		stated = append(stated, n)
	}
	for _, n := range judge("", nil, known, stated) {
		if !n.placeholder() {
			v.Nodes = append(v.Nodes, n.Node)
		}
		if n.Doubled != "" {
			problems = append(problems, fault.From(refused(v1alpha1.KindClusterNode, n.String(), "%s", n.Doubled)).Explain())
		}
	}
	return v, problems
}
