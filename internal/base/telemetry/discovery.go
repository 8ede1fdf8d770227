// SPDX-License-Identifier: Apache-2.0

package telemetry

import "github.com/prometheus/client_golang/prometheus"

// Discovery are the metrics of a discovery service. None names a cluster.
type Discovery struct {
	Calls        *prometheus.CounterVec // method, outcome
	Refused      *prometheus.CounterVec // code
	Unread       prometheus.Counter
	Reloads      *prometheus.CounterVec // outcome
	Certificates *prometheus.CounterVec // outcome
}

// DiscoveryReadings are read when metrics are scraped.
type DiscoveryReadings struct {
	Clusters, Members, Bytes, Watchers, Connections, Unread func() float64
	CertificateEnd                                          func() float64
}

// NewDiscovery registers the metrics of a discovery service.
func NewDiscovery(reg prometheus.Registerer, r DiscoveryReadings) *Discovery {
	f := factory{reg}
	f.gaugeFunc("tombolo_discovery_clusters", "Clusters that have a member.", r.Clusters)
	f.gaugeFunc("tombolo_discovery_members", "Members that are listed.", r.Members)
	f.gaugeFunc("tombolo_discovery_member_bytes", "Bytes of memory that members take.", r.Bytes)
	f.gaugeFunc("tombolo_discovery_watchers", "Watches of clusters.", r.Watchers)
	f.gaugeFunc("tombolo_discovery_connections", "Connections of the main port.", r.Connections)
	f.gaugeFunc("tombolo_discovery_unread_bytes", "Bytes of answers that callers have not read yet.", r.Unread)
	f.gaugeFunc("tombolo_discovery_certificate_expiry_timestamp_seconds",
		"When the certificate of the main port ends, as a Unix time; 0 without TLS.", r.CertificateEnd)
	d := &Discovery{
		Calls: f.counterVec("tombolo_discovery_calls_total",
			"Calls and native entries that were answered, by method and outcome (ok or a fault code).", "method", "outcome"),
		Refused: f.counterVec("tombolo_discovery_refused_connections_total",
			"Connections that were refused before a call, by fault code.", "code"),
		Unread: f.counter("tombolo_discovery_unread_connections_total",
			"Connections that were closed because their answers were not read."),
		Reloads: f.counterVec("tombolo_discovery_config_reloads_total", "Reloads of the configuration, by outcome.",
			"outcome"),
		Certificates: f.counterVec("tombolo_discovery_certificate_failures_total",
			"Certificates that could not be loaded, by fault code.", "code"),
	}
	for _, m := range []string{"Hello", "AffiliateUpdate", "AffiliateDelete", "List", "Watch", "Attend", "Put"} {
		d.Calls.WithLabelValues(m, Outcome(""))
		d.Calls.WithLabelValues(m, "limit_reached")
	}
	for _, m := range []string{"Watch", "Attend"} {
		d.Calls.WithLabelValues(m, "watch_lost")
	}
	begin(d.Refused, []string{"limit_reached", "request_malformed"})
	begin(d.Reloads, []string{Outcome("")})
	begin(d.Certificates, []string{"certificate_invalid"})
	return d
}
