// SPDX-License-Identifier: Apache-2.0

package telemetry_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
)

func TestLoggers(t *testing.T) {
	var out strings.Builder
	log, err := telemetry.Logger(&out, "json", "warn")
	if err != nil {
		t.Fatal(err)
	}
	log.Info("too low")
	log.Warn("shown", telemetry.AttrCluster, "c1")
	var record map[string]any
	if err := json.Unmarshal([]byte(out.String()), &record); err != nil || record["msg"] != "shown" || record["cluster"] != "c1" {
		t.Errorf("%q, %v", out.String(), err)
	}
	for _, format := range []string{"", "text"} {
		out.Reset()
		log, err := telemetry.Logger(&out, format, "")
		if err != nil {
			t.Fatal(err)
		}
		log.Debug("too low")
		log.Info("line\nforged")
		if n := strings.Count(out.String(), "\n"); n != 1 || !strings.Contains(out.String(), `msg="line\nforged"`) {
			t.Errorf("format %q: %q", format, out.String())
		}
	}
	for _, c := range [][2]string{{"xml", ""}, {"text", "loud"}, {"JSON", ""}} {
		if _, err := telemetry.Logger(&out, c[0], c[1]); !fault.Has(err, fault.CodeUsage) || fault.From(err).Why == "" {
			t.Errorf("%q: %v", c, err)
		}
	}
}

func TestOutcomesAreBounded(t *testing.T) {
	for code, want := range map[fault.Code]string{"": "ok", fault.CodeNoAgent: "no_agent", "made_up_by_a_peer": "other"} {
		if got := telemetry.Outcome(code); got != want {
			t.Errorf("%q: %q, want %q", code, got, want)
		}
	}
}

// TestMetrics registers both roles' metrics together, as nothing else may have
// their names, and holds the names to the rules of Prometheus.
func TestMetrics(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	one := func() float64 { return 1 }
	each := func(string) float64 { return 1 }
	hub := telemetry.NewHub(reg, telemetry.HubReadings{
		Sessions: one, Clusters: one, ClustersConnected: one, BytesToCluster: one, BytesFromCluster: one, ClientCertificateEnd: one,
		Connections: one, Unread: one,
		PolicyFiles: one, PolicyRules: one, MemoryUsed: one, MemoryLimit: one, LimitUse: each,
		RelayNodes: one, RelayRefused: one, RelayPackets: one, RelayBytes: one, RelayDropped: each,
		WireGuardClusters: one, WireGuardFree: one,
	})
	agent := telemetry.NewAgent(reg, telemetry.AgentReadings{
		Sessions: one, BytesToTarget: one, BytesToCaller: one, CertificateEnd: one, Connections: one, Unread: one,
	})
	telemetry.NewAudit(reg, []string{"dial"}, []string{"disk"})
	hub.Attaches.WithLabelValues("ok").Inc()
	agent.Attaches.WithLabelValues("ok").Inc()
	hub.SessionEnds.WithLabelValues("ok").Inc()
	agent.SessionEnds.WithLabelValues("ok").Inc()
	hub.Joins.WithLabelValues("join", "ok").Inc()
	hub.Dials.WithLabelValues("connect", "ok").Inc()
	hub.DialDuration.WithLabelValues("connect").Observe(1)
	hub.StreamEnds.WithLabelValues("ok").Inc()
	hub.Reloads.WithLabelValues("ok").Inc()
	hub.PolicyReloads.WithLabelValues("ok").Inc()
	hub.RelayEnds.WithLabelValues("ok").Inc()
	hub.Refused.WithLabelValues("request_malformed").Inc()
	agent.Connects.WithLabelValues("ok").Inc()
	agent.Dials.WithLabelValues("ok").Inc()
	agent.StreamEnds.WithLabelValues("ok").Inc()
	agent.Renewals.WithLabelValues("ok").Inc()
	agent.Ports.WithLabelValues("registry", "ok").Inc()

	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile(`^tombolo_(hub|agent|audit)_[a-z]+(_[a-z]+)*$`)
	for _, f := range families {
		counter := f.GetType().String() == "COUNTER"
		switch {
		case !name.MatchString(f.GetName()):
			t.Errorf("%s is no name of ours", f.GetName())
		case counter != strings.HasSuffix(f.GetName(), "_total"):
			t.Errorf("%s is a %s: counters, and only they, end in _total", f.GetName(), f.GetType())
		case !strings.HasSuffix(f.GetHelp(), "."):
			t.Errorf("%s: the help %q is no sentence", f.GetName(), f.GetHelp())
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if n := l.GetName(); n == "cluster" || n == "agent" || n == "target" {
					t.Errorf("%s has the label %s, which 10,000 clusters would fill", f.GetName(), n)
				}
			}
		}
	}
	if len(families) != 37+17+2 {
		t.Errorf("%d families are gathered: a metric is missing from this test, or new", len(families))
	}
}
