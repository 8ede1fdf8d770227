// SPDX-License-Identifier: Apache-2.0

package telemetry

import "github.com/prometheus/client_golang/prometheus"

// MeshRelay are the metrics of a node's certificate and of its connections to the
// relay of hubs.
type MeshRelay struct {
	Connects *prometheus.CounterVec // outcome
	Ends     *prometheus.CounterVec // reason
	Joins    *prometheus.CounterVec // outcome
	Renewals *prometheus.CounterVec // outcome
}

// MeshRelayReadings are read when metrics are scraped.
type MeshRelayReadings struct {
	Hubs, Sent, Received, SentBytes, ReceivedBytes, Absent, CertificateEnd func() float64
	Dropped                                                                func(reason string) float64
}

// NewMeshRelay registers the metrics of MeshRelay.
func NewMeshRelay(reg prometheus.Registerer, r MeshRelayReadings) *MeshRelay {
	f := factory{reg}
	f.gaugeFunc("tombolo_mesh_relay_hubs", "Hubs to whose relay this node is connected.", r.Hubs)
	f.counterFunc("tombolo_mesh_relay_sent_packets_total", "Packets given to connections to the relay.", r.Sent)
	f.counterFunc("tombolo_mesh_relay_sent_bytes_total", "Bytes of packets given to connections to the relay.",
		r.SentBytes)
	f.counterFunc("tombolo_mesh_relay_received_packets_total", "Packets that came through the relay.", r.Received)
	f.counterFunc("tombolo_mesh_relay_received_bytes_total", "Bytes of packets that came through the relay.",
		r.ReceivedBytes)
	f.counterFuncs("tombolo_mesh_relay_dropped_packets_total", "Packets for the relay that were dropped here, by reason.",
		"reason", []string{"away", "queue", "size"}, r.Dropped)
	f.counterFunc("tombolo_mesh_relay_absent_total", "Times that a hub reported a peer as absent.", r.Absent)
	f.gaugeFunc("tombolo_mesh_certificate_expiry_timestamp_seconds",
		"When the node's certificate ends, as a Unix time; 0 without one.", r.CertificateEnd)
	out := &MeshRelay{
		Connects: f.counterVec("tombolo_mesh_relay_connects_total",
			"Attempts to connect to the relay of a hub, by outcome (ok or a fault code).", "outcome"),
		Ends: f.counterVec("tombolo_mesh_relay_ends_total",
			"Connections to the relay that were in use and ended, by reason (a fault code).", "reason"),
		Joins: f.counterVec("tombolo_mesh_joins_total", "Attempts to join, by outcome (ok or a fault code).", "outcome"),
		Renewals: f.counterVec("tombolo_mesh_renewals_total",
			"Renewals of the node's certificate, by outcome (ok or a fault code).", "outcome"),
	}
	out.Ends.WithLabelValues("session_lost")
	for _, c := range []*prometheus.CounterVec{out.Connects, out.Joins, out.Renewals} {
		c.WithLabelValues(Outcome(""))
	}
	return out
}
