// SPDX-License-Identifier: Apache-2.0

package telemetry

import "github.com/prometheus/client_golang/prometheus"

// LinkHost are the metrics of the part of the controller that accepts linked clusters.
type LinkHost struct {
	Clusters prometheus.Gauge
	Refused  prometheus.Gauge
	Warnings prometheus.Gauge
	Seconds  prometheus.Histogram
}

// NewLinkHost registers them.
func NewLinkHost(reg prometheus.Registerer) *LinkHost {
	f := factory{reg}
	return &LinkHost{
		Clusters: f.gauge("tombolo_link_host_clusters", "Objects of kind Cluster."),
		Refused:  f.gauge("tombolo_link_host_refused", "Clusters whose ranges are refused."),
		Warnings: f.gauge("tombolo_link_host_warnings", "What is odd about clusters, accepted or not."),
		Seconds:  f.histogram("tombolo_link_host_decide_seconds", "Time to read all clusters and nodes and to judge them."),
	}
}
