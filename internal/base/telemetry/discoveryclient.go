// SPDX-License-Identifier: Apache-2.0

package telemetry

import "github.com/prometheus/client_golang/prometheus"

// DiscoveryClient are the metrics of a node's discovery client.
type DiscoveryClient struct {
	Attempts *prometheus.CounterVec // outcome
	Passed   *prometheus.CounterVec // reason
	Merged   prometheus.Counter
	Rivals   prometheus.Counter
}

// DiscoveryClientReadings are read when metrics are scraped.
type DiscoveryClientReadings struct {
	Members, Stale, Conflicts, Sessions, Attending func() float64
}

// NewDiscoveryClient registers the counters of a node's discovery client.
func NewDiscoveryClient(reg prometheus.Registerer) *DiscoveryClient {
	f := factory{reg}
	out := &DiscoveryClient{
		Attempts: f.counterVec("tombolo_discovery_client_attempts_total",
			"Sessions that began (ok) or failed (a fault code).", "outcome"),
		Passed: f.counterVec("tombolo_discovery_client_passed_over_total",
			"Entries and blobs of services that were ignored.", "reason"),
		Merged: f.counter("tombolo_discovery_client_merged_entries_total",
			"Entries of all sources, counted at each merge."),
		Rivals: f.counter("tombolo_discovery_client_rival_entries_total",
			"Entries with this member's key that were not made here."),
	}
	out.Attempts.WithLabelValues(Outcome(""))
	begin(out.Passed, []string{"junk", "stale", "full"})
	return out
}

// ReadDiscoveryClient registers what is read when metrics are scraped.
func ReadDiscoveryClient(reg prometheus.Registerer, r DiscoveryClientReadings) {
	f := factory{reg}
	f.gaugeFunc("tombolo_discovery_client_members", "Other members that are known.", r.Members)
	f.gaugeFunc("tombolo_discovery_client_members_stale",
		"Of these, those past their lease while no service reports them.", r.Stale)
	f.gaugeFunc("tombolo_discovery_client_conflicts", "Facts that two members claim.", r.Conflicts)
	f.gaugeFunc("tombolo_discovery_client_sessions", "Wanted sessions: one for each service and secret.", r.Sessions)
	f.gaugeFunc("tombolo_discovery_client_sessions_attending",
		"Sessions in which a service reports members.", r.Attending)
}

// KubePart is how a part of an API server as a source does, in numbers.
type KubePart struct {
	Answers               bool
	Contact               float64 // Unix seconds, 0 for never
	Objects, Members, Bad int
}

// NewKube registers the metrics of an API server as a source. read is called when
// they are scraped, once for each; the announcement of this node has no objects.
func NewKube(reg prometheus.Registerer, reading, all []string, read func(part string) KubePart) {
	f := factory{reg}
	f.gaugeFuncs("tombolo_discovery_client_kubernetes_answers",
		"1 while the Kubernetes API answers requests.", "part", all,
		func(part string) float64 { return flag(read(part).Answers) })
	f.gaugeFuncs("tombolo_discovery_client_kubernetes_contact_timestamp_seconds",
		"When the Kubernetes API last answered, as a Unix time; 0 for never.",
		"part", all, func(part string) float64 { return read(part).Contact })
	f.gaugeFuncs("tombolo_discovery_client_kubernetes_objects", "Known objects of the Kubernetes API.", "part", reading,
		func(part string) float64 { return float64(read(part).Objects) })
	f.gaugeFuncs("tombolo_discovery_client_kubernetes_members",
		"Of these, those that state something about a member.", "part", reading,
		func(part string) float64 { return float64(read(part).Members) })
	f.gaugeFuncs("tombolo_discovery_client_kubernetes_bad_objects",
		"Of these, those that cannot be read and are ignored.", "part", reading,
		func(part string) float64 { return float64(read(part).Bad) })
}
