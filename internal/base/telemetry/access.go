// SPDX-License-Identifier: Apache-2.0

package telemetry

import "github.com/prometheus/client_golang/prometheus"

// Access are the metrics of the controller's feature access.
type Access struct {
	Clusters  prometheus.Gauge
	Held      prometheus.Gauge
	Problems  prometheus.Gauge
	Writes    *prometheus.CounterVec // kind, action, outcome
	Seconds   prometheus.Histogram
	Gaps      *prometheus.GaugeVec // gap
	Unguarded *prometheus.GaugeVec // cluster, flow, gap: at most MostUnguarded of them
}

// MostUnguarded bounds the series that name a cluster.
const MostUnguarded = 32

// NewAccess registers them.
func NewAccess(reg prometheus.Registerer, kinds, gaps []string) *Access {
	f := factory{reg}
	m := &Access{
		Clusters: f.gauge("tombolo_access_clusters", "Clusters whose access lists are enforced, and those without one."),
		Held: f.gauge("tombolo_access_held",
			"1 if something is not changed, because what was in force before the start is not known."),
		Problems: f.gauge("tombolo_access_problems",
			"What a gateway does and its objects do not tell, so that no cluster counts as covered there."),
		Writes: f.counterVec("tombolo_access_writes_total", "Objects that were written and removed, by kind and outcome.",
			"kind", "action", "outcome"),
		Seconds: f.histogram("tombolo_access_write_seconds",
			"Time from the first change seen until all objects were written."),
		Gaps: f.gaugeVec("tombolo_access_gaps", "Ways into clusters that are not guarded as their list says.", "gap"),
		Unguarded: f.gaugeVec("tombolo_access_unguarded",
			"The ways of tombolo_access_gaps by cluster and flow; at most 32 of them have a name.", "cluster", "flow", "gap"),
	}
	for _, kind := range kinds {
		for _, action := range []string{"write", "remove", "inject"} {
			m.Writes.WithLabelValues(kind, action, Outcome(""))
		}
	}
	for _, gap := range gaps {
		m.Gaps.WithLabelValues(gap)
	}
	return m
}
