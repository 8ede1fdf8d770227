// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// Route are the metrics of routed mode. None has a label for clusters.
type Route struct {
	Dials    *prometheus.CounterVec // outcome, answer
	Took     prometheus.Histogram
	Dropped  *prometheus.CounterVec // reason
	Hubs     *prometheus.CounterVec // outcome
	Names    *prometheus.CounterVec // outcome
	Up, Down *atomic.Int64          // bytes
}

// RouteReadings are read when metrics are scraped.
type RouteReadings struct {
	Open, Lost func() float64
}

// NewRoute registers the metrics of routed mode.
func NewRoute(reg prometheus.Registerer, r RouteReadings) *Route {
	f := factory{reg}
	m := &Route{
		Up: new(atomic.Int64), Down: new(atomic.Int64),
		Dials: f.counterVec("tombolo_route_dials_total",
			"Connections that callers asked for, by outcome and what the caller saw.", "outcome", "answer"),
		Dropped: f.counterVec("tombolo_route_dropped_packets_total",
			"Packets that were routed to a cluster and not taken, and answers that did not fit, by reason.", "reason"),
		Hubs:  f.counterVec("tombolo_route_hub_requests_total", "Requests to hubs for a stream, by outcome.", "outcome"),
		Names: f.counterVec("tombolo_route_names_total", "Questions for names, by outcome.", "outcome"),
		Took:  f.histogram("tombolo_route_dial_duration_seconds", "Time from a SYN until its answer."),
	}
	f.counterFunc("tombolo_route_bytes_to_cluster_total", "Bytes carried from callers into clusters.",
		func() float64 { return float64(m.Up.Load()) })
	f.counterFunc("tombolo_route_bytes_from_cluster_total", "Bytes carried out of clusters to callers.",
		func() float64 { return float64(m.Down.Load()) })
	f.gaugeFunc("tombolo_route_connections", "Connections that are open.", r.Open)
	f.counterFunc("tombolo_route_lost_packets_total", "Packets that the kernel did not take from the TUN device.", r.Lost)
	return m
}
