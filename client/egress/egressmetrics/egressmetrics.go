// SPDX-License-Identifier: Apache-2.0

// Package egressmetrics counts the dials of package egress in kube-apiserver's metrics, with the network as one label
// more. It is a package of its own so that package egress does not depend on Prometheus, and it does not serve them.
package egressmetrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-io/tombolo/client/egress"
)

// New registers the metrics, and returns what a Selector has as Observe.
func New(to prometheus.Registerer) (egress.Observer, error) {
	labels := []string{"protocol", "transport", "egress_type"}
	starts := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "apiserver_egress_dialer_dial_start_total",
		Help: "Dial starts, labeled by the protocol (http_connect, grpc or direct), transport (tcp or uds) and egress type.",
	}, labels)
	latencies := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "apiserver_egress_dialer_dial_duration_seconds",
		Help: "Latency of dials that succeeded in seconds, labeled by the protocol (http_connect, grpc or direct), " +
			"transport (tcp or uds) and egress type.",
		Buckets: []float64{0.005, 0.025, 0.1, 0.5, 2.5, 12.5}, // kube-apiserver's
	}, labels)
	failures := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "apiserver_egress_dialer_dial_failure_count",
		Help: "Dial failures, labeled by the protocol (http_connect, grpc or direct), transport (tcp or uds), egress type, " +
			"and the stage at which the dial failed (connect or proxy).",
	}, append(labels, "stage"))
	for _, c := range []prometheus.Collector{starts, latencies, failures} {
		if err := to.Register(c); err != nil {
			return nil, err
		}
	}
	return func(ctx context.Context, d egress.Dial) (context.Context, func(egress.Stage, error)) {
		start := time.Now()
		starts.WithLabelValues(d.Protocol, d.Transport, d.Network).Inc()
		return ctx, func(stage egress.Stage, err error) {
			if err != nil {
				failures.WithLabelValues(d.Protocol, d.Transport, d.Network, string(stage)).Inc()
				return
			}
			latencies.WithLabelValues(d.Protocol, d.Transport, d.Network).Observe(time.Since(start).Seconds())
		}
	}, nil
}
