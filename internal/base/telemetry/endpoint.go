// SPDX-License-Identifier: Apache-2.0

package telemetry

import "github.com/prometheus/client_golang/prometheus"

// Endpoint are the metrics of a mesh node's own endpoints.
type Endpoint struct {
	Requests       prometheus.Counter
	Answers        prometheus.Counter
	Failures       *prometheus.CounterVec // reason
	Rebindings     prometheus.Counter
	PortMapping    prometheus.Gauge
	MachineChanges prometheus.Counter
	Sleeps         prometheus.Counter
}

// NewEndpoint registers the metrics of a mesh node's own endpoints.
func NewEndpoint(reg prometheus.Registerer) *Endpoint {
	f := factory{reg}
	e := &Endpoint{
		Requests: f.counter("tombolo_mesh_stun_requests_total",
			"STUN requests that were sent, without those of netcheck."),
		Answers: f.counter("tombolo_mesh_stun_answers_total", "Valid answers of STUN servers."),
		Failures: f.counterVec("tombolo_mesh_stun_failures_total",
			"STUN requests, answers and servers that failed, by reason.", "reason"),
		Rebindings:  f.counter("tombolo_mesh_rebindings_total", "Changes of mapped endpoints."),
		PortMapping: f.gauge("tombolo_mesh_port_mapping", "1 while the router forwards a port to this node."),
		MachineChanges: f.counter("tombolo_mesh_machine_changes_total",
			"Changes of this machine's addresses or default routes."),
		Sleeps: f.counter("tombolo_mesh_sleeps_total", "Times that this machine slept."),
	}
	begin(e.Failures, []string{"unsent", "unanswered", "refused", "dropped"})
	return e
}
