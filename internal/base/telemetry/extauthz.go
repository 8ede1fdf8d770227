// SPDX-License-Identifier: Apache-2.0

package telemetry

import "github.com/prometheus/client_golang/prometheus"

// ExtAuthz are the metrics of a server of Envoy's external authorization.
type ExtAuthz struct {
	Checks  *prometheus.CounterVec // filter, outcome
	Reloads *prometheus.CounterVec // outcome
}

// NewExtAuthz registers the metrics of a server that answers these filters.
func NewExtAuthz(reg prometheus.Registerer, filters []string, tenants func() float64) *ExtAuthz {
	f := factory{reg}
	m := &ExtAuthz{
		Checks: f.counterVec("tombolo_ext_authz_checks_total", "Requests of Envoy that were decided, by filter and outcome.",
			"filter", "outcome"),
		Reloads: f.counterVec("tombolo_ext_authz_reloads_total", "Changes of policy and tenants that were read, by outcome.",
			"outcome"),
	}
	f.gaugeFunc("tombolo_ext_authz_tenants", "Tenants in force.", tenants)
	for _, filter := range filters {
		m.Checks.WithLabelValues(filter, Outcome(""))
	}
	return m
}
