// SPDX-License-Identifier: Apache-2.0

package telemetry

import "github.com/prometheus/client_golang/prometheus"

// Mirror are the metrics of a STUN server.
type Mirror struct {
	Answers *prometheus.CounterVec // family
	Dropped *prometheus.CounterVec // reason
}

// NewMirror registers the metrics of a STUN server.
func NewMirror(reg prometheus.Registerer) *Mirror {
	f := factory{reg}
	m := &Mirror{
		Answers: f.counterVec("tombolo_stun_answers_total", "Binding requests that were answered, by IP version.", "family"),
		Dropped: f.counterVec("tombolo_stun_dropped_total", "Packets that were not answered, by reason.", "reason"),
	}
	begin(m.Answers, []string{"ipv4", "ipv6"})
	begin(m.Dropped, []string{"malformed", "source_rate", "total_rate", "send"})
	return m
}
