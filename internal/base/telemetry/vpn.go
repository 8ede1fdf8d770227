// SPDX-License-Identifier: Apache-2.0

package telemetry

import "github.com/prometheus/client_golang/prometheus"

// VPN are the metrics of one end of a tunnel. A peer is a client by the name of its certificate, or a server by its
// address: there are a few.
type VPN struct {
	Up       *prometheus.GaugeVec   // peer
	Bytes    *prometheus.CounterVec // peer, direction: in or out
	Starts   prometheus.Counter
	Refused  prometheus.Counter
	Switches prometheus.Counter
	Connects *prometheus.CounterVec // outcome
}

// NewVPN registers the metrics of one end. open is how many CONNECTs are, read when metrics are scraped.
func NewVPN(reg prometheus.Registerer, open func() float64) *VPN {
	f := factory{reg}
	m := &VPN{
		Up:     f.gaugeVec("tombolo_vpn_up", "1 if packets pass to a peer.", "peer"),
		Bytes:  f.counterVec("tombolo_vpn_bytes_total", "Bytes on the wire, by peer and direction.", "peer", "direction"),
		Starts: f.counter("tombolo_vpn_starts_total", "Starts of OpenVPN, also after it ended."),
		Refused: f.counter("tombolo_vpn_refused_clients_total",
			"Clients that a server sent away, although the CA has made their certificates."),
		Switches: f.counter("tombolo_vpn_switches_total", "Clients whose place another one had to take."),
		Connects: f.counterVec("tombolo_vpn_connects_total", "CONNECTs, by outcome.", "outcome"),
	}
	f.gaugeFunc("tombolo_vpn_connections", "CONNECTs that are open.", open)
	return m
}

// VPNForward are the metrics of what carries connections of clusters in a mesh to their servers.
type VPNForward struct {
	Connections *prometheus.CounterVec // outcome
}

// VPNForwardReadings are read when metrics are scraped.
type VPNForwardReadings struct{ Open, Clusters, Up, Down func() float64 }

// NewVPNForward registers them.
func NewVPNForward(reg prometheus.Registerer, r VPNForwardReadings) *VPNForward {
	f := factory{reg}
	f.gaugeFunc("tombolo_vpn_forward_open", "Connections, or flows of UDP, that are open.", r.Open)
	f.gaugeFunc("tombolo_vpn_forward_clusters", "Clusters that are served.", r.Clusters)
	f.counterFunc("tombolo_vpn_forward_up_bytes_total", "Bytes from clusters to their servers.", r.Up)
	f.counterFunc("tombolo_vpn_forward_down_bytes_total", "Bytes from servers to their clusters.", r.Down)
	return &VPNForward{
		Connections: f.counterVec("tombolo_vpn_forward_connections_total",
			"Connections, or flows of UDP, by outcome: ok or the code of a fault.", "outcome"),
	}
}

// VPNRoutes are the metrics of the route to the endpoint machines of a mesh: there are a few.
type VPNRoutes struct {
	Route *prometheus.GaugeVec // endpoint
	Moves prometheus.Counter
}

// NewVPNRoutes registers them.
func NewVPNRoutes(reg prometheus.Registerer) *VPNRoutes {
	f := factory{reg}
	return &VPNRoutes{
		Route: f.gaugeVec("tombolo_vpn_routes_via", "1 for the endpoint that has the route.", "endpoint"),
		Moves: f.counter("tombolo_vpn_routes_moves_total", "Times that the route went to another endpoint, or to nobody."),
	}
}
