// SPDX-License-Identifier: Apache-2.0

package host

import (
	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/link/accept"
)

// mostMark bounds a mark: the policy allows members to write no object with a longer annotation.
const mostMark = 256

// marks are those that have to be written on nodes that lost to earlier ones: what they claim is not theirs later
// either, when the other one is made anew. One that is there stays as it is.
func marks(clusters []accept.Cluster, verdicts []accept.Verdict, nodes []objects.ClusterNode) (out []annotation) {
	due := map[string]map[string]string{} // of clusters, why nodes are marked
	for i, v := range verdicts {
		due[clusters[i].Name] = v.Mark
	}
	for i := range nodes {
		n := &nodes[i]
		why := due[n.Spec.ClusterName][n.Spec.NodeName]
		if why != "" && n.Annotations[objects.AnnotationDoubled] == "" && len(out) < mostNoted {
			out = append(out, annotation{n, objects.AnnotationDoubled, cut(why, mostMark)})
		}
	}
	return out
}
