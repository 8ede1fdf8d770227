// SPDX-License-Identifier: Apache-2.0

package telemetry

import "github.com/prometheus/client_golang/prometheus"

// ControllerReadings are what a controller knows when it is asked.
type ControllerReadings struct {
	Leads   func() bool
	Expires func() float64 // seconds since 1970; 0: there is no certificate
}

// Controller are the metrics of the controller itself, whatever its features are.
type Controller struct {
	Renewals *prometheus.CounterVec // outcome
	Reviews  *prometheus.CounterVec // kind, outcome
}

// NewController registers the metrics of a controller that reviews these kinds.
func NewController(reg prometheus.Registerer, kinds []string, r ControllerReadings) *Controller {
	f := factory{reg}
	m := &Controller{
		Renewals: f.counterVec("tombolo_controller_renewals_total",
			"Changes of the webhooks' certificates and of who trusts them, by outcome.", "outcome"),
		Reviews: f.counterVec("tombolo_controller_reviews_total",
			"Objects that the API server asked about, by kind and outcome.", "kind", "outcome"),
	}
	f.gaugeFunc("tombolo_controller_leader", "1 if this replica writes.", func() float64 { return flag(r.Leads()) })
	f.gaugeFunc("tombolo_controller_certificate_expiry_timestamp_seconds",
		"When the webhooks' certificate ends, in seconds since 1970; 0 if there is none.", r.Expires)
	m.Renewals.WithLabelValues(Outcome(""))
	for _, kind := range kinds {
		m.Reviews.WithLabelValues(kind, Outcome(""))
	}
	return m
}
