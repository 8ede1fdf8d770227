// SPDX-License-Identifier: Apache-2.0

package tell

import "github.com/prometheus/client_golang/prometheus"

// Finder are the metrics of a node's side of discovery.
type Finder struct {
	Attempts *prometheus.CounterVec // outcome
	Passed   *prometheus.CounterVec // reason
}

// FinderReadings are read when metrics are scraped.
type FinderReadings struct {
	Members, Conflicts, Sessions, Attending func() float64
}

// NewFinder registers the metrics of a node's side of discovery.
func NewFinder(reg prometheus.Registerer, r FinderReadings) *Finder {
	f := factory{reg}
	f.gaugeFunc("tombolo_finder_members", "Other members that are known.", r.Members)
	f.gaugeFunc("tombolo_finder_conflicts", "Facts that two members claim.", r.Conflicts)
	f.gaugeFunc("tombolo_finder_sessions", "Sessions that are wanted: one for each service and secret.", r.Sessions)
	f.gaugeFunc("tombolo_finder_sessions_attending", "Sessions in which a service tells us of the members.", r.Attending)
	out := &Finder{
		Attempts: f.counterVec("tombolo_finder_attempts_total", "Sessions that began or failed, by outcome (ok or a fault code).", "outcome"),
		Passed:   f.counterVec("tombolo_finder_passed_over_total", "Entries and blobs of services that were passed over, by reason.", "reason"),
	}
	out.Attempts.WithLabelValues(Outcome(""))
	begin(out.Passed, []string{"junk", "stale", "full"})
	return out
}
