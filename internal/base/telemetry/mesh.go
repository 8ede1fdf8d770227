// SPDX-License-Identifier: Apache-2.0

package telemetry

import "github.com/prometheus/client_golang/prometheus"

// Mesh are the metrics of a mesh node itself.
type Mesh struct {
	Reloads *prometheus.CounterVec // outcome
}

// MeshReadings are read when metrics are scraped.
type MeshReadings struct {
	Waiting func() float64 // settings that take effect at the next start
	Closed  func() float64 // ranges
	Dropped func(reason string) float64
	IPsec   func(name string) float64 // errors
	// Packets of IPsec, and the highest sequence number of a tunnel by which they are sent.
	Packets  func(direction string) float64
	Sequence func() float64
}

// NewMesh registers the metrics of a mesh node itself; reasons are those of its tunnel's
// drops, and ipsec the names of IPsec's errors, of which a node without IPsec has none.
func NewMesh(reg prometheus.Registerer, reasons, ipsec []string, r MeshReadings) *Mesh {
	f := factory{reg}
	f.gaugeFunc("tombolo_mesh_settings_waiting", "Settings that were changed in the configuration and need a restart.",
		r.Waiting)
	f.gaugeFunc("tombolo_mesh_closed_ranges",
		"Closed ranges: packets for them are lost, because their member, or its key, is no longer announced.", r.Closed)
	f.counterFuncs("tombolo_mesh_tunnel_dropped_packets_total",
		"Packets that were dropped between the network and the link, by reason.", "reason", reasons, r.Dropped)
	if len(ipsec) > 0 {
		f.counterFuncs("tombolo_mesh_ipsec_errors_total",
			"Packets that the kernel's IPsec has dropped in this network namespace, by the kernel's names.", "error",
			ipsec, r.IPsec)
		f.counterFuncs("tombolo_mesh_ipsec_packets_total", "Packets of IPsec to and from peers, as last read.", "direction",
			[]string{"sent", "received"}, r.Packets)
		f.gaugeFunc("tombolo_mesh_ipsec_sequence_used",
			"The highest sequence number of the tunnels of IPsec by which packets are sent.", r.Sequence)
	}
	m := &Mesh{Reloads: f.counterVec("tombolo_mesh_config_reloads_total",
		"Reloads of the configuration, by outcome (ok or a fault code).", "outcome")}
	begin(m.Reloads, []string{Outcome("")})
	return m
}
