// SPDX-License-Identifier: Apache-2.0

package telemetry

import "github.com/prometheus/client_golang/prometheus"

// DiscoveryStore are the metrics of what a discovery service keeps its members in.
type DiscoveryStore struct {
	Writes    *prometheus.CounterVec // outcome
	Conflicts prometheus.Counter
}

// DiscoveryStoreState is how the store is, in numbers.
type DiscoveryStoreState struct {
	Settled, Degraded bool
	Since, Saved      float64 // Unix seconds, 0 for never: of Degraded, and of what was last heard or saved
}

// NewDiscoveryStore registers the metrics. read is called when they are scraped,
// once for each; without it only what happens is counted.
func NewDiscoveryStore(reg prometheus.Registerer, read func() DiscoveryStoreState) *DiscoveryStore {
	f := factory{reg}
	if read != nil {
		f.gaugeFunc("tombolo_discovery_store_settled", "1 if who is not known is not there; 0 while members are awaited.",
			func() float64 { return flag(read().Settled) })
		f.gaugeFunc("tombolo_discovery_store_degraded", "1 while what is known is not safe or not new, as when etcd is away.",
			func() float64 { return flag(read().Degraded) })
		f.gaugeFunc("tombolo_discovery_store_degraded_since_timestamp_seconds",
			"Since when, as a Unix time; 0 while all is well.",
			func() float64 { return read().Since })
		f.gaugeFunc("tombolo_discovery_store_saved_timestamp_seconds",
			"When the last snapshot was written, or etcd last heard, as a Unix time; 0 for never.",
			func() float64 { return read().Saved })
	}
	return &DiscoveryStore{
		Writes: f.counterVec("tombolo_discovery_store_writes_total",
			"Updates and removals, by outcome (ok, a fault code, or other).", "outcome"),
		Conflicts: f.counter("tombolo_discovery_store_conflicts_total",
			"Writes that another service was quicker with, and that were tried again."),
	}
}

func flag(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
