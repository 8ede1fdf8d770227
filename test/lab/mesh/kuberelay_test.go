// SPDX-License-Identifier: Apache-2.0

//go:build lab

package mesh

import (
	"testing"
	"time"
)

// TestMeshByKubernetesAndARelay: nodes that know of each other by Kubernetes alone, and
// cannot reach each other, use the relay of a hub, which knows them by the name in their
// certificates. It is not that of their Nodes.
func TestMeshByKubernetesAndARelay(t *testing.T) {
	t.Parallel()
	k := withKubernetes(t, "symmetric", "symmetric")
	k.startHub()
	var nodes []*node
	for _, place := range k.grid.All {
		name := "kube-" + place.Host.Name()
		k.api.AddNode(t, name)
		nodes = append(nodes, k.rig.node(place, settings{
			sources: map[string]any{"kubernetes": map[string]any{
				"kubeconfig": k.write(name+".kubeconfig", string(k.api.Kubeconfig(name))), "node": name, "read": []string{"members"}, "write": []string{"members"},
			}},
			mesh: map[string]any{"join": "@" + (&node{rig: k.rig, place: place}).token(), "hubs": []string{hubAt4}},
		}))
	}
	a, b := nodes[0], nodes[1]
	together(a, b)
	known(a, b)
	awaitState(a, b, relayed)
	awaitState(b, a, relayed)
	begin := time.Now()
	k.awaitAfter(a.flood(b.overlay4), begin)
	k.requireNoClearText(a, b)
}
