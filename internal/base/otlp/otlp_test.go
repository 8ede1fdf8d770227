// SPDX-License-Identifier: Apache-2.0

package otlp_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/otlp"
	"github.com/tombolo-io/tombolo/internal/base/otlp/otlptest"
	"github.com/tombolo-io/tombolo/internal/base/reqmeta"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

const (
	parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	asleep = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00" // the caller does not want it recorded
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a tracer with its collector.
type rig struct {
	*otlp.Tracer
	collector *otlptest.Collector
	reg       *prometheus.Registry
	log       runtest.Transcript
}

func newRig(t *testing.T, change func(*otlp.Config)) *rig {
	t.Helper()
	r := &rig{collector: otlptest.New(t), reg: prometheus.NewRegistry()}
	cfg := otlp.Config{Ratio: 1, Traces: otlp.Endpoint{URL: r.collector.URL + "/v1/traces", CAFile: r.collector.CAFile, Timeout: limit.CollectorTimeout}}
	if change != nil {
		change(&cfg)
	}
	var err error
	r.Tracer, err = otlp.NewTracer(cfg, otlp.Options{
		Log: slog.New(slog.NewTextHandler(&r.log, nil)), Reg: r.reg, Service: "tombolo-hub", Version: "v1", Name: "hub1",
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// count sums the series of a metric.
func (r *rig) count(t *testing.T, name, reason string) (sum float64) {
	t.Helper()
	families, err := r.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			if reason == "" || len(m.GetLabel()) > 0 && m.GetLabel()[0].GetValue() == reason {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

func TestADialIsOneTrace(t *testing.T) {
	r := newRig(t, nil)
	err := r.While(t.Context(), func() error {
		dial := r.Begin(t.Context(), "dial", parent, "vendor=1")
		dial.Set("tombolo.cluster", "c1")
		ask := dial.Child("ask", otlp.Client)
		next, state := ask.Context()
		if !strings.HasPrefix(next, parent[:36]) || next == parent || !strings.HasSuffix(next, "-01") || state != "vendor=1" {
			t.Errorf("the next hop is told %q, %q", next, state)
		}
		far := r.Begin(t.Context(), "dial", next, state)
		far.End("dial_refused")
		ask.End("")
		dial.End("")
		r.Begin(t.Context(), "alone", "", "").End("")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string][]*tracepb.Span{}
	for _, s := range r.collector.Spans() {
		byName[s.Name] = append(byName[s.Name], s)
	}
	if len(byName["dial"]) != 2 || len(byName["ask"]) != 1 || len(byName["alone"]) != 1 {
		t.Fatalf("%v", r.collector.Spans())
	}
	far, dial, ask := byName["dial"][0], byName["dial"][1], byName["ask"][0]
	if hex.EncodeToString(dial.TraceId) != reqmeta.TraceID(parent) || hex.EncodeToString(dial.ParentSpanId) != parent[36:52] {
		t.Errorf("the dial is no part of the caller's trace: %v", dial)
	}
	if string(ask.ParentSpanId) != string(dial.SpanId) || string(far.ParentSpanId) != string(ask.SpanId) || string(far.TraceId) != string(dial.TraceId) {
		t.Errorf("the steps do not hang together:\n%v\n%v\n%v", dial, ask, far)
	}
	if far.Status.GetCode() != tracepb.Status_STATUS_CODE_ERROR || dial.Status.GetCode() == tracepb.Status_STATUS_CODE_ERROR {
		t.Errorf("status: %v, %v", far.Status, dial.Status)
	}
	if string(byName["alone"][0].TraceId) == string(dial.TraceId) {
		t.Error("a dial without a trace has joined another's")
	}
	if text := fmt.Sprint(r.collector.Resources()); !strings.Contains(text, "tombolo-hub") || !strings.Contains(text, "hub1") {
		t.Errorf("who sent them: %s", text)
	}
	if sent, lost := r.count(t, "tombolo_trace_spans_total", ""), r.count(t, "tombolo_trace_spans_lost_total", ""); sent != 4 || lost != 0 {
		t.Errorf("%v sent, %v lost", sent, lost)
	}
}

// TestTheCallerDecidesOnRecording shows the sampler: parent-based, with a ratio for the rest.
func TestTheCallerDecidesOnRecording(t *testing.T) {
	r := newRig(t, func(c *otlp.Config) { c.Ratio = 0 })
	err := r.While(t.Context(), func() error {
		for _, from := range []string{parent, asleep, ""} {
			s := r.Begin(t.Context(), "dial", from, "")
			next, _ := s.Context()
			if from != "" && !strings.HasPrefix(next, from[:36]) || !reqmeta.IsTraceparent(next) {
				t.Errorf("%q is passed on as %q", from, next)
			}
			s.End("")
		}
		return nil
	})
	if got := r.collector.Spans(); err != nil || len(got) != 1 || hex.EncodeToString(got[0].ParentSpanId) != parent[36:52] {
		t.Errorf("%v, %v", got, err)
	}
}

// TestACollectorThatTakesNothing fills the queue many times over: nobody waits,
// every span is either sent or counted as lost, and what waited arrives when the
// collector is back.
func TestACollectorThatTakesNothing(t *testing.T) {
	const many = 3 * otlp.SpanQueue
	for name, c := range map[string]struct{ away, back func(*otlptest.Collector) }{
		"dead": {func(c *otlptest.Collector) { c.Stop() }, func(c *otlptest.Collector) { c.Return() }},
		"hung": {func(c *otlptest.Collector) { c.Hang() }, func(c *otlptest.Collector) { c.Release() }},
		"full": {func(c *otlptest.Collector) { c.Answer(503, nil) }, func(c *otlptest.Collector) { c.Answer(200, nil) }},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			c.away(r.collector)
			err := r.While(t.Context(), func() error {
				for range many { // returns although nothing is taken
					r.Begin(t.Context(), "dial", "", "").End("")
				}
				if lost := r.count(t, "tombolo_trace_spans_lost_total", "queue_full"); lost < many-otlp.SpanQueue-2*otlp.SpanBatch {
					t.Errorf("%v of %d are counted as lost", lost, many)
				}
				c.back(r.collector)
				runtest.Eventually(t, "what waited arrives", func() bool {
					return r.count(t, "tombolo_trace_spans_total", "")+r.count(t, "tombolo_trace_spans_lost_total", "") == many
				})
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if got := len(r.collector.Spans()); float64(got) < r.count(t, "tombolo_trace_spans_total", "") || got < otlp.SpanQueue {
				t.Errorf("%d arrived", got)
			}
			if !strings.Contains(r.log.String(), "spans of traces are lost") {
				t.Errorf("the log is silent:\n%s", r.log.String())
			}
		})
	}
}

func TestTheEndDoesNotWaitForADeadCollector(t *testing.T) {
	r := newRig(t, nil)
	r.collector.Stop()
	if err := r.While(t.Context(), func() error {
		r.Begin(t.Context(), "dial", "", "").End("")
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	r.Begin(t.Context(), "late", "", "").End("")
	if lost := r.count(t, "tombolo_trace_spans_lost_total", "stopped"); lost != 2 {
		t.Errorf("%v lost", lost)
	}
}

func TestSpansThatTheCollectorDoesNotWant(t *testing.T) {
	r := newRig(t, nil)
	if err := r.While(t.Context(), func() error {
		r.collector.Answer(400, nil)
		r.Begin(t.Context(), "dial", "", "").End("")
		runtest.Eventually(t, "they are given up", func() bool { return r.count(t, "tombolo_trace_spans_lost_total", "refused") == 1 })
		r.collector.Answer(200, []byte{0x0a, 0x02, 0x08, 0x01}) // partial success, 1 rejected
		r.Begin(t.Context(), "dial", "", "").End("")
		runtest.Eventually(t, "the rejected one is counted", func() bool { return r.count(t, "tombolo_trace_spans_lost_total", "refused") == 2 })
		r.collector.Answer(200, []byte{0x0a, 0x02, 0x08, 0x7f}) // 127 rejected, of one
		r.Begin(t.Context(), "dial", "", "").End("")
		runtest.Eventually(t, "no more are lost than were sent", func() bool { return r.count(t, "tombolo_trace_spans_lost_total", "refused") >= 3 })
		if lost, sent := r.count(t, "tombolo_trace_spans_lost_total", "refused"), r.count(t, "tombolo_trace_spans_total", ""); lost != 3 || sent != 0 {
			t.Errorf("%v lost, %v sent", lost, sent)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

type key struct{}

// TestTurnedOffCostsNothing shows that no dial pays for traces that nobody wants.
func TestTurnedOffCostsNothing(t *testing.T) {
	off, err := otlp.NewTracer(otlp.Config{}, otlp.Options{})
	if off != nil || err != nil {
		t.Fatalf("%v, %v", off, err)
	}
	ctx := context.WithValue(t.Context(), key{}, 1)
	if n := testing.AllocsPerRun(1000, func() {
		s := off.Begin(ctx, "dial", parent, "a=1")
		c := otlp.Of(otlp.With(ctx, s)).Child("ask", otlp.Client)
		c.Set("key", "value")
		c.Context()
		c.End("dial_refused")
		s.End("")
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestHeadersComeFromAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "headers")
	put := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("# for the collector\nAuthorization: Bearer first\n\n")
	r := newRig(t, func(c *otlp.Config) { c.Traces.HeadersFile = file })
	saw := func(want string) func() bool {
		return func() bool {
			r.Begin(t.Context(), "dial", "", "").End("")
			for _, h := range r.collector.Headers() {
				if h.Get("Authorization") == want {
					return true
				}
			}
			return false
		}
	}
	if err := r.While(t.Context(), func() error {
		runtest.Eventually(t, "the header comes", saw("Bearer first"))
		put("Authorization: Bearer second\n")
		runtest.Eventually(t, "the changed header comes", saw("Bearer second"))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"no colon swordfish\n", "bad name: swordfish\n", "X: sword\x01fish\n", strings.Repeat("x", limit.RequestHeader+1)} {
		put(text)
		cfg := otlp.Config{Traces: otlp.Endpoint{URL: "https://localhost:1/v1/traces", HeadersFile: file, Timeout: time.Second}}
		if _, err := otlp.NewTracer(cfg, otlp.Options{Reg: prometheus.NewRegistry()}); err == nil || strings.Contains(err.Error(), "fish") {
			t.Errorf("%.20q: %v", text, err)
		}
	}
}

// TestHeadersArePrivate: a token that everybody on the machine may read is none.
func TestHeadersArePrivate(t *testing.T) {
	file := filepath.Join(t.TempDir(), "headers")
	if err := errors.Join(os.WriteFile(file, []byte("Authorization: Bearer x\n"), 0o600), os.Chmod(file, 0o644)); err != nil {
		t.Fatal(err)
	}
	to := otlp.Endpoint{URL: "https://localhost:1/v1/traces", HeadersFile: file, Timeout: time.Second}
	_, traces := otlp.NewTracer(otlp.Config{Traces: to}, otlp.Options{Reg: prometheus.NewRegistry()})
	_, logs := otlp.NewLogs(otlp.Config{Logs: to}, otlp.Options{Reg: prometheus.NewRegistry()})
	for _, err := range []error{traces, logs} {
		if !fault.Has(err, fault.CodeSecret) || !strings.Contains(fault.From(err).Explain(), "chmod 600 "+file) {
			t.Errorf("%v", err)
		}
	}
}

func TestWhatIsNoEndpoint(t *testing.T) {
	ratio := v1alpha1.Ratio(0.5)
	for _, c := range []struct {
		name string
		in   v1alpha1.TracingConfig
		at   string
	}{
		{"only a ratio", v1alpha1.TracingConfig{Ratio: &ratio}, "tracing.endpoint"},
		{"only a CA", v1alpha1.TracingConfig{OTLPConfig: v1alpha1.OTLPConfig{CAFile: "/ca"}}, "tracing.endpoint"},
		{"no URL", v1alpha1.TracingConfig{OTLPConfig: v1alpha1.OTLPConfig{Endpoint: "collector:4318"}}, "tracing.endpoint"},
		{"grpc", v1alpha1.TracingConfig{OTLPConfig: v1alpha1.OTLPConfig{Endpoint: "grpc://collector:4317"}}, "tracing.endpoint"},
		{"a password", v1alpha1.TracingConfig{OTLPConfig: v1alpha1.OTLPConfig{Endpoint: "https://u:hunter2@collector"}}, "tracing.endpoint"},
		{"a query", v1alpha1.TracingConfig{OTLPConfig: v1alpha1.OTLPConfig{Endpoint: "https://collector?key=hunter2"}}, "tracing.endpoint"},
		{"headers in clear", v1alpha1.TracingConfig{OTLPConfig: v1alpha1.OTLPConfig{Endpoint: "http://collector", HeadersFile: "/h"}}, "tracing.headersFile"},
		{"a CA for nothing", v1alpha1.TracingConfig{OTLPConfig: v1alpha1.OTLPConfig{Endpoint: "http://[::1]", CAFile: "/ca"}}, "tracing.caFile"},
		{"a relative file", v1alpha1.TracingConfig{OTLPConfig: v1alpha1.OTLPConfig{Endpoint: "https://collector", CAFile: "ca"}}, "tracing.caFile"},
		{"no time", v1alpha1.TracingConfig{OTLPConfig: v1alpha1.OTLPConfig{Endpoint: "https://collector", Timeout: v1alpha1.Duration{Duration: time.Millisecond}}}, "tracing.timeout"},
	} {
		var at []string
		otlp.Configure(v1alpha1.AuditConfig{}, c.in, func(path, format string, args ...any) {
			at = append(at, path)
			if text := fmt.Sprintf(format, args...); strings.Contains(text, "hunter2") {
				t.Errorf("%s: %s", c.name, text)
			}
		})
		if len(at) != 1 || at[0] != c.at {
			t.Errorf("%s: problems at %v", c.name, at)
		}
	}
	none := func(path, format string, args ...any) { t.Errorf("%s: %s", path, fmt.Sprintf(format, args...)) }
	c := otlp.Configure(v1alpha1.AuditConfig{OTLP: v1alpha1.OTLPConfig{Endpoint: "https://collector:4318/"}},
		v1alpha1.TracingConfig{OTLPConfig: v1alpha1.OTLPConfig{Endpoint: "http://127.0.0.1:4318/otlp/x", HeadersFile: "/h"}, Ratio: &ratio}, none)
	if c.Logs.URL != "https://collector:4318/v1/logs" || c.Traces.URL != "http://127.0.0.1:4318/otlp/x" || c.Ratio != 0.5 || c.Logs.Timeout != limit.CollectorTimeout {
		t.Errorf("%+v", c)
	}
	var r v1alpha1.Ratio
	for _, text := range []string{"", "1.01", "-0.1", "NaN", "all", "10%"} {
		if r.UnmarshalText([]byte(text)) == nil {
			t.Errorf("%q is a ratio", text)
		}
	}
}

// TestACollectorThatAsksForAPause gets it, and then what waited.
func TestACollectorThatAsksForAPause(t *testing.T) {
	r := newRig(t, nil)
	r.collector.Answer(503, nil)
	r.collector.Later("2")
	if err := r.While(t.Context(), func() error {
		r.Begin(t.Context(), "dial", "", "").End("")
		// It may refuse again before the test goes on.
		runtest.Eventually(t, "it refuses", func() bool { return len(r.collector.Times()) >= 1 })
		r.collector.Answer(200, nil)
		r.collector.Later("")
		runtest.Eventually(t, "it takes the span", func() bool { return len(r.collector.Spans()) == 1 })
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	times := r.collector.Times()
	for i := range len(times) - 1 {
		if times[i+1].Sub(times[i]) < 2*time.Second {
			t.Errorf("it was asked at %v", times)
		}
	}
	if len(times) < 2 {
		t.Errorf("it was asked at %v alone", times)
	}
	if !strings.Contains(r.log.String(), "a retry in 2s") {
		t.Errorf("the log does not say so: %s", r.log.String())
	}
}
