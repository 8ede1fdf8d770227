// SPDX-License-Identifier: Apache-2.0

package telemetry

import "github.com/prometheus/client_golang/prometheus"

// Routing are the metrics of a mesh node's kernel state.
type Routing struct {
	Steps    *prometheus.CounterVec // verb, object
	Applies  *prometheus.CounterVec // outcome
	Repairs  prometheus.Counter
	Policies *prometheus.CounterVec // outcome
}

// RoutingReadings are read when metrics are scraped.
type RoutingReadings struct {
	InForce, Watching, Ranges func() float64
	Problems                  func(kind string) float64
	Dropped                   func(reason string) float64
}

// NewRouting registers the metrics of a mesh node's kernel state, with the kinds of
// problems and the reasons of drops that there are.
func NewRouting(reg prometheus.Registerer, kinds, reasons []string, r RoutingReadings) *Routing {
	f := factory{reg}
	f.gaugeFunc("tombolo_mesh_in_force", "1 while the kernel has what the mesh wants, as far as is known.", r.InForce)
	f.gaugeFunc("tombolo_mesh_kernel_watched", "1 while the kernel reports its changes.", r.Watching)
	f.gaugeFunc("tombolo_mesh_ranges", "Ranges that are routed to peers, their addresses in the mesh among them.",
		r.Ranges)
	f.gaugeFuncs("tombolo_mesh_problems", "Members and ranges that do not count, by kind.", "kind", kinds, r.Problems)
	f.counterFuncs("tombolo_mesh_dropped_packets_total", "Packets that our nftables rules dropped, by reason.",
		"reason", reasons, r.Dropped)
	out := &Routing{
		Steps: f.counterVec("tombolo_mesh_steps_total", "Changes of the kernel's state, by verb and object.", "verb",
			"object"),
		Applies: f.counterVec("tombolo_mesh_applies_total",
			"Comparisons of the kernel's state with the desired one, by outcome (ok or a fault code).", "outcome"),
		Repairs: f.counter("tombolo_mesh_repairs_total",
			"Times that the mesh restored what others had removed or changed."),
		Policies: f.counterVec("tombolo_mesh_policy_reloads_total",
			"Reloads of the policy between peers, by outcome (ok or a fault code).", "outcome"),
	}
	out.Applies.WithLabelValues(Outcome(""))
	out.Policies.WithLabelValues(Outcome(""))
	return out
}
