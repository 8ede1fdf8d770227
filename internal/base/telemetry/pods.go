// SPDX-License-Identifier: Apache-2.0

package telemetry

import "github.com/prometheus/client_golang/prometheus"

// NewPods registers the metrics of the ranges of a mesh node's own pods.
func NewPods(reg prometheus.Registerer, read func(state string) float64) {
	f := factory{reg}
	f.gaugeFuncs("tombolo_mesh_pod_ranges",
		"Pod ranges of this node in Kubernetes, by whether they are announced or refused.",
		"state", []string{"announced", "refused"}, read)
}
