// SPDX-License-Identifier: Apache-2.0

package telemetry

import "github.com/prometheus/client_golang/prometheus"

// ACL are the metrics of the part of the controller that reads Extensions of type acl.
type ACL struct {
	Lists   prometheus.Gauge
	Refused prometheus.Gauge
}

// NewACL registers them.
func NewACL(reg prometheus.Registerer) *ACL {
	f := factory{reg}
	return &ACL{
		Lists:   f.gauge("tombolo_acl_lists", "Extensions of type acl."),
		Refused: f.gauge("tombolo_acl_refused", "Extensions of type acl whose list is not in force as it is written."),
	}
}
