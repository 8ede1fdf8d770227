// SPDX-License-Identifier: Apache-2.0

package telemetry

import "github.com/prometheus/client_golang/prometheus"

// Audit are the metrics of audit records, the same for every role that writes them.
type Audit struct {
	Records *prometheus.CounterVec // kind
	Lost    *prometheus.CounterVec // reason
}

// NewAudit registers the metrics of audit records; every series exists from the
// start, so that the first loss is seen as an increase.
func NewAudit(reg prometheus.Registerer, kinds, reasons []string) *Audit {
	f := factory{reg}
	a := &Audit{
		Records: f.counterVec("tombolo_audit_records_total", "Audit records that were accepted, by kind.", "kind"),
		Lost:    f.counterVec("tombolo_audit_lost_total", "Audit records that were lost, by reason.", "reason"),
	}
	begin(a.Records, kinds)
	begin(a.Lost, reasons)
	return a
}
