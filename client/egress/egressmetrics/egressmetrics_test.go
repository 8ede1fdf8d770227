// SPDX-License-Identifier: Apache-2.0

package egressmetrics_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-io/tombolo/client/egress"
	"github.com/tombolo-io/tombolo/client/egress/egressmetrics"
)

// TestMetrics are named as kube-apiserver's.
func TestMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	observe, err := egressmetrics.New(registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, stage := range []egress.Stage{"", egress.StageConnect, egress.StageProxy, ""} {
		_, done := observe(t.Context(), egress.Dial{Network: egress.Cluster, Protocol: "grpc", Transport: "uds", Address: "a:1"})
		var err error
		if stage != "" {
			err = errors.New("no")
		}
		done(stage, err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += fmt.Sprintf(" %s=%s", l.GetName(), l.GetValue())
			}
			got[name] = m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	const way = " egress_type=cluster protocol=grpc"
	want := map[string]float64{
		"apiserver_egress_dialer_dial_start_total" + way + " transport=uds":                 4,
		"apiserver_egress_dialer_dial_duration_seconds" + way + " transport=uds":            2,
		"apiserver_egress_dialer_dial_failure_count" + way + " stage=connect transport=uds": 1,
		"apiserver_egress_dialer_dial_failure_count" + way + " stage=proxy transport=uds":   1,
	}
	if !maps.Equal(got, want) {
		t.Errorf("%s", strings.Join(slices.Sorted(maps.Keys(got)), "\n"))
	}
	if _, err := egressmetrics.New(registry); err == nil {
		t.Error("they are registered twice")
	}
}
