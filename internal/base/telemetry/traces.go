// SPDX-License-Identifier: Apache-2.0

package telemetry

import "github.com/prometheus/client_golang/prometheus"

// Traces are the metrics of traces, the same for every role that makes them.
type Traces struct {
	Sent prometheus.Counter
	Lost *prometheus.CounterVec // reason
}

// NewTraces registers the metrics of traces; every series exists from the start.
func NewTraces(reg prometheus.Registerer, reasons []string) *Traces {
	f := factory{reg}
	t := &Traces{
		Sent: f.counter("tombolo_trace_spans_total", "Spans of traces that the collector took."),
		Lost: f.counterVec("tombolo_trace_spans_lost_total", "Spans of traces that were lost, by reason.", "reason"),
	}
	begin(t.Lost, reasons)
	return t
}
