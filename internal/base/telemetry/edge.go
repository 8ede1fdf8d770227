// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// Edge are the metrics of an edge. None has a label for clusters.
type Edge struct {
	Visits        *prometheus.CounterVec // listener, outcome
	Tunnels       *prometheus.CounterVec // listener
	PolicyReloads *prometheus.CounterVec // outcome
	TenantReloads *prometheus.CounterVec // outcome
	Up, Down      *atomic.Int64          // bytes
}

// EdgeReadings are read when metrics are scraped.
type EdgeReadings struct {
	Tenants, Tunnels, Ejected, Unguarded func() float64
}

// NewEdge registers the metrics of an edge.
func NewEdge(reg prometheus.Registerer, r EdgeReadings) *Edge {
	f := factory{reg}
	m := &Edge{
		Up: new(atomic.Int64), Down: new(atomic.Int64),
		Visits: f.counterVec("tombolo_edge_connections_total",
			"Connections that have ended, by listener and outcome.", "listener", "outcome"),
		Tunnels: f.counterVec("tombolo_edge_tunnels_total", "Connections that were let in, by listener.", "listener"),
		PolicyReloads: f.counterVec("tombolo_edge_policy_reloads_total",
			"Changes of the policy's files that were read, by outcome.", "outcome"),
		TenantReloads: f.counterVec("tombolo_edge_tenant_reloads_total",
			"Changes of the tenants' files that were read, by outcome.", "outcome"),
	}
	f.counterFunc("tombolo_edge_bytes_to_cluster_total", "Bytes carried from clients into clusters.",
		func() float64 { return float64(m.Up.Load()) })
	f.counterFunc("tombolo_edge_bytes_from_cluster_total", "Bytes carried out of clusters to clients.",
		func() float64 { return float64(m.Down.Load()) })
	f.gaugeFunc("tombolo_edge_tenants", "Tenants in force.", r.Tenants)
	f.gaugeFunc("tombolo_edge_tunnels", "Tunnels that are open.", r.Tunnels)
	f.gaugeFunc("tombolo_edge_upstreams_ejected", "Upstreams that failed and are tried after all others.", r.Ejected)
	f.gaugeFunc("tombolo_edge_unguarded_ways",
		"Ways into clusters that rules name, without a rule for their flow.", r.Unguarded)
	return m
}
