// SPDX-License-Identifier: Apache-2.0

package telemetry

import "github.com/prometheus/client_golang/prometheus"

// Peering are the metrics of a mesh node's paths to its peers. None names a peer: figures per
// peer are in 'tombolo mesh status'.
type Peering struct {
	Sent       *prometheus.CounterVec // kind
	Received   *prometheus.CounterVec // kind
	Dropped    *prometheus.CounterVec // reason
	Paths      *prometheus.CounterVec // from, to
	Handshakes prometheus.Counter
}

// PeeringReadings are read when metrics are scraped.
type PeeringReadings struct {
	Peers   func(state string) float64
	Bytes   func(direction string) float64
	Relayed func(direction string) float64
}

// NewPeering registers the metrics of a mesh node's paths to its peers.
func NewPeering(reg prometheus.Registerer, r PeeringReadings) *Peering {
	f := factory{reg}
	f.gaugeFuncs("tombolo_mesh_peers", "Peers of this node, by the state of the path to them.", "state",
		[]string{"idle", "direct", "relayed", "down"}, r.Peers)
	directions := []string{"sent", "received"}
	f.counterFuncs("tombolo_mesh_bytes_total",
		"Bytes of WireGuard to and from peers, on any path, as last read.", "direction", directions, r.Bytes)
	f.counterFuncs("tombolo_mesh_relayed_bytes_total", "Of WireGuard's bytes, those that went or came through a relay.",
		"direction", directions, r.Relayed)
	m := &Peering{
		Sent:     f.counterVec("tombolo_mesh_probes_sent_total", "Probes that were sent, by kind.", "kind"),
		Received: f.counterVec("tombolo_mesh_probes_received_total", "Valid probes of peers, by kind.", "kind"),
		Dropped: f.counterVec("tombolo_mesh_probes_dropped_total",
			"Probes and relayed packets that were dropped, and probes that could not be sent, by reason.", "reason"),
		Paths: f.counterVec("tombolo_mesh_path_changes_total", "Changes of the path to a peer, by the kinds of both.",
			"from", "to"),
		Handshakes: f.counter("tombolo_mesh_handshakes_total", "Completed WireGuard handshakes."),
	}
	begin(m.Sent, []string{"ping", "pong", "call"})
	begin(m.Received, []string{"ping", "pong", "call"})
	begin(m.Dropped, []string{"malformed", "no_peer", "forged", "unknown", "rate", "unasked", "inside", "unsent"})
	for _, from := range []string{"none", "direct", "relayed"} {
		for _, to := range []string{"none", "direct", "relayed"} {
			if from != "none" || to != "none" { // between two addresses or two hubs too
				m.Paths.WithLabelValues(from, to)
			}
		}
	}
	return m
}
