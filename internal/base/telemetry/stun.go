// SPDX-License-Identifier: Apache-2.0

package telemetry

import "github.com/prometheus/client_golang/prometheus"

// STUN are the metrics of a STUN server.
type STUN struct {
	Answers *prometheus.CounterVec // family
	Dropped *prometheus.CounterVec // reason
}

// NewSTUN registers the metrics of a STUN server.
func NewSTUN(reg prometheus.Registerer) *STUN {
	f := factory{reg}
	m := &STUN{
		Answers: f.counterVec("tombolo_stun_answers_total", "Binding requests that were answered, by IP version.", "family"),
		Dropped: f.counterVec("tombolo_stun_dropped_total", "Packets that were not answered, by reason.", "reason"),
	}
	begin(m.Answers, []string{"ipv4", "ipv6"})
	begin(m.Dropped, []string{"malformed", "source_rate", "total_rate", "send"})
	return m
}
