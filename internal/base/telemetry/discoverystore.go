// SPDX-License-Identifier: Apache-2.0

package telemetry

import "github.com/prometheus/client_golang/prometheus"

// DiscoveryStore are the metrics of a discovery service's store.
type DiscoveryStore struct {
	Writes    *prometheus.CounterVec // outcome
	Conflicts prometheus.Counter
}

// DiscoveryStoreState is the state of the store, in numbers.
type DiscoveryStoreState struct {
	Settled, Degraded bool
	Since, Saved      float64 // Unix seconds, 0 for never: of Degraded, and of the last contact or snapshot
}

// NewDiscoveryStore registers the metrics. read is called when they are scraped, once for
// each; if it is nil there are only the counters.
func NewDiscoveryStore(reg prometheus.Registerer, read func() DiscoveryStoreState) *DiscoveryStore {
	f := factory{reg}
	if read != nil {
		f.gaugeFunc("tombolo_discovery_store_settled", "1 if unknown members are absent; 0 while members are still awaited.",
			func() float64 { return flag(read().Settled) })
		f.gaugeFunc("tombolo_discovery_store_degraded", "1 while members are not saved or not current, as when etcd is away.",
			func() float64 { return flag(read().Degraded) })
		f.gaugeFunc("tombolo_discovery_store_degraded_since_timestamp_seconds",
			"Since when the store is degraded, as a Unix time; 0 while it is not.",
			func() float64 { return read().Since })
		f.gaugeFunc("tombolo_discovery_store_saved_timestamp_seconds",
			"When the last snapshot was written, or etcd last answered, as a Unix time; 0 for never.",
			func() float64 { return read().Saved })
	}
	return &DiscoveryStore{
		Writes: f.counterVec("tombolo_discovery_store_writes_total",
			"Updates and removals, by outcome (ok, a fault code, or other).", "outcome"),
		Conflicts: f.counter("tombolo_discovery_store_conflicts_total",
			"Writes that lost against another service, and were retried."),
	}
}

func flag(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
