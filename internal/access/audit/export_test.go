// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	logspb "go.opentelemetry.io/proto/otlp/logs/v1"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/otlp"
	"github.com/tombolo-io/tombolo/internal/base/otlp/otlptest"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// sending is a Writer with a collector, and with a file if cfg has one.
func sending(t *testing.T, cfg Config, log *runtest.Transcript) (*Writer, *otlptest.Collector) {
	t.Helper()
	c := otlptest.New(t)
	o := options(t, log)
	logs, err := otlp.NewLogs(otlp.Config{Logs: otlp.Endpoint{URL: c.URL + "/v1/logs", CAFile: c.CAFile, Timeout: limit.CollectorTimeout}},
		otlp.Options{Service: "tombolo-hub", Name: "hub1"})
	if err != nil {
		t.Fatal(err)
	}
	o.Export = logs
	w, err := New(cfg, o)
	if err != nil {
		t.Fatal(err)
	}
	return w, c
}

// exported are the records as the bodies of log records have them.
func exported(t *testing.T, logs []*logspb.LogRecord) (out []Record) {
	t.Helper()
	for _, l := range logs {
		out = append(out, records(t, []byte(l.Body.GetStringValue()+"\n"))...)
	}
	return out
}

func TestRecordsAreLogRecords(t *testing.T) {
	var log runtest.Transcript
	w, c := sending(t, Config{}, &log)
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	begun := time.Now().Truncate(time.Microsecond)
	if err := w.While(t.Context(), func() error {
		w.Write(Record{Kind: KindDial, Time: begun, Caller: "unix:c1/connect", Up: 12, Duration: Millis(1500 * time.Microsecond),
			Traceparent: parent, Metadata: NewMetadata(map[string]string{"ticket": "OPS-1"}), Peer: &Peer{UID: 7}})
		w.Write(Record{Kind: KindRefusal, Time: begun, Caller: "second"})
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	logs := c.Logs()
	if len(logs) != 2 {
		t.Fatalf("%d log records", len(logs))
	}
	got := map[string]any{}
	for _, a := range logs[0].Attributes {
		switch {
		case a.Value.GetStringValue() != "":
			got[a.Key] = a.Value.GetStringValue()
		case a.Value.GetDoubleValue() != 0:
			got[a.Key] = a.Value.GetDoubleValue()
		default:
			got[a.Key] = a.Value.GetIntValue()
		}
	}
	for key, want := range map[string]any{
		"tombolo.kind": "dial", "tombolo.caller": "unix:c1/connect", "tombolo.bytesUp": int64(12), "tombolo.durationMillis": 1.5,
		"tombolo.metadata.ticket": "OPS-1", "tombolo.peer.uid": int64(7),
	} {
		if got[key] != want {
			t.Errorf("%s is %v, want %v", key, got[key], want)
		}
	}
	if hex.EncodeToString(logs[0].TraceId) != parent[3:35] || hex.EncodeToString(logs[0].SpanId) != parent[36:52] {
		t.Errorf("the trace is %x, %x", logs[0].TraceId, logs[0].SpanId)
	}
	if int64(logs[0].TimeUnixNano) != begun.UnixNano() || logs[0].EventName != "tombolo.audit.dial" {
		t.Errorf("%v", logs[0])
	}
	if logs[0].SeverityText != "INFO" || logs[1].SeverityText != "WARN" {
		t.Errorf("%s, %s", logs[0].SeverityText, logs[1].SeverityText)
	}
	if r := exported(t, logs); r[0].Caller != "unix:c1/connect" || r[1].Kind != KindRefusal {
		t.Errorf("%+v", r)
	}
}

// TestACollectorDoesNotHoldUpTheFile has both, and a collector that is away, is
// slow, or answers with an error: nobody waits, the file has everything, what the
// collector missed is counted and told of, and dials are refused in strict mode alone.
func TestACollectorDoesNotHoldUpTheFile(t *testing.T) {
	for name, c := range map[string]struct{ away, back func(*otlptest.Collector) }{
		"dead": {func(c *otlptest.Collector) { c.Stop() }, func(c *otlptest.Collector) { c.Return() }},
		"slow": {func(c *otlptest.Collector) { c.Hang() }, func(c *otlptest.Collector) { c.Release() }},
		"full": {func(c *otlptest.Collector) { c.Answer(503, nil) }, func(c *otlptest.Collector) { c.Answer(200, nil) }},
	} {
		t.Run(name, func(t *testing.T) {
			var log runtest.Transcript
			cfg := config(t)
			cfg.Strict, cfg.MaxSize = true, auditFile
			w, collector := sending(t, cfg, &log)
			c.away(collector)
			const many = auditQueue + 2000
			lost := func() float64 { return lostCount(w, lostAway) + lostCount(w, lostQueue) }
			if err := w.While(t.Context(), func() error {
				for n := range many {
					w.Write(dial("x"))
					if n%500 == 0 { // the disk is not what is tried here
						runtest.Eventually(t, "the disk follows", func() bool { return len(w.queue) < 100 })
					}
				}
				runtest.Eventually(t, "losses are counted", func() bool { return lost() > 0 })
				runtest.Eventually(t, "dials are refused", func() bool { return fault.Has(w.Admit(), fault.CodeAudit) })
				if text := fault.From(w.Admit()).Explain(); !strings.Contains(text, "collector") {
					t.Errorf("the refusal does not say what fails: %s", text)
				}
				c.back(collector)
				runtest.Eventually(t, "dials are admitted again", func() bool { return w.Admit() == nil })
				w.Write(dial("after"))
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			data, err := os.ReadFile(cfg.Path)
			if err != nil {
				t.Fatal(err)
			}
			inFile := map[string]bool{}
			for _, r := range records(t, data) {
				if r.Kind == KindLost || inFile[r.ID] {
					t.Fatalf("in the file: %+v", r)
				}
				inFile[r.ID] = true
			}
			sent, told := map[string]bool{}, int64(0)
			for _, r := range exported(t, collector.Logs()) {
				if r.Kind == KindLost {
					told += r.Count
				} else if !inFile[r.ID] {
					t.Fatalf("the file lacks %+v", r)
				}
				sent[r.ID] = true
			}
			if len(inFile) != many+1 || float64(told) != lost() {
				t.Errorf("%d records in the file, %d of %d written; the collector is told of %d lost, counted are %v",
					len(inFile), many, len(sent), told, lost())
			}
			if !strings.Contains(log.String(), "audit records are lost") {
				t.Errorf("the log is silent:\n%s", log.String())
			}
			if n := value(w.metrics.Records, "dial"); n != many+1 {
				t.Errorf("%v records are counted", n)
			}
		})
	}
}

func TestTheEndDoesNotWaitForAHungCollector(t *testing.T) {
	var log runtest.Transcript
	w, c := sending(t, Config{}, &log)
	c.Hang()
	if err := w.While(t.Context(), func() error {
		w.Write(dial("x"))
		runtest.Eventually(t, "the collector holds it", func() bool { return c.Waiting() > 0 })
		w.Write(dial("y"))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if n := lostCount(w, lostStop); n != 2 {
		t.Errorf("%v are counted as lost", n)
	}
}

func TestRecordsThatTheCollectorDoesNotWant(t *testing.T) {
	var log runtest.Transcript
	w, c := sending(t, Config{Strict: true}, &log)
	if err := w.While(t.Context(), func() error {
		c.Answer(400, nil)
		w.Write(dial("x"))
		runtest.Eventually(t, "it is counted", func() bool { return lostCount(w, lostRejected) == 1 })
		c.Answer(200, nil)
		w.Write(dial("y"))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	var told int64
	for _, r := range exported(t, c.Logs()) {
		told += r.Count
	}
	if told != 1 {
		t.Errorf("the collector is told of %d lost", told)
	}
}

func TestAnUnwritableFileIsAnErrorBesideACollector(t *testing.T) {
	var log runtest.Transcript
	o := options(t, &log)
	o.Export = &otlp.Logs{}
	if _, err := New(Config{Path: filepath.Join(t.TempDir(), "no", "such", "folder")}, o); !fault.Has(err, fault.CodeAudit) {
		t.Errorf("%v", err)
	}
}

// A collector that asks for a pause gets it; what it rejects in part is counted.
func TestACollectorThatAsksForAPause(t *testing.T) {
	var log runtest.Transcript
	w, c := sending(t, Config{}, &log)
	c.Answer(429, nil)
	c.Later("2")
	if err := w.While(t.Context(), func() error {
		w.Write(dial("x"))
		// It may refuse again before the test goes on.
		runtest.Eventually(t, "it refuses", func() bool { return len(c.Times()) >= 1 })
		c.Answer(200, []byte{0x0a, 2, 0x08, 1}) // partial_success: rejected 1
		c.Later("")
		runtest.Eventually(t, "what is rejected counts", func() bool { return lostCount(w, lostRejected) == 1 })
		c.Answer(200, nil)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if times := c.Times(); len(times) < 2 || times[1].Sub(times[0]) < 2*time.Second {
		t.Errorf("it was asked at %v", times)
	}
}
