// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/test/roles"
)

// TestResultsAreReadAsWritten, and the run before stays beside them.
func TestResultsAreReadAsWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out", "results.jsonl")
	h := header{Begun: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), CPU: "c", Cores: 2, Window: time.Second}
	want := append(sampled("bulk1", down, "tls", rate, 1, 2.5), sampled("ping", "idle", "mux2", p50, 3)...)
	for range 2 {
		r, err := createResults(path, h)
		if err != nil {
			t.Fatal(err)
		}
		for _, rec := range want {
			if err := r.add(rec); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{path, strings.TrimSuffix(path, ".jsonl") + "-before.jsonl"} {
		gotH, got, err := loadResults(name)
		if err != nil || gotH != h || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v %+v %v, want %+v %+v", name, gotH, got, err, h, want)
		}
	}
}

func TestWhatIsNoRunIsRefused(t *testing.T) {
	head, err := json.Marshal(header{Begun: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"nothing": "", "no JSON": "hello", "no samples": string(head),
		"a broken line": string(head) + "\n{\"measurement\":",
		"another file":  "{\"a\":1}\n{\"b\":2}\n",
	} {
		if _, _, err := readResults(strings.NewReader(text)); err == nil {
			t.Errorf("%s was read as a run", name)
		}
	}
	if _, _, err := loadResults(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a file that is not there was read")
	}
}

func TestEveryMetricHasAUnit(t *testing.T) {
	shown := map[metric]bool{}
	for _, m := range order() {
		shown[m] = true
		if units()[m].name == "" {
			t.Errorf("%s has no unit", m)
		}
	}
	for m, u := range units() {
		if !shown[m] && !u.quiet {
			t.Errorf("%s has no column", m)
		}
		if strings.ContainsAny(u.name, " \t") {
			t.Errorf("the unit %q of %s would be two words to benchstat", u.name, m)
		}
	}
}

func TestPrintTable(t *testing.T) {
	m := measurement{name: "bulk1", about: "one stream", transports: []string{"tls", "mux2", "mux4"}, variants: []string{down}, main: rate, against: "tls"}
	var records []record
	for i, v := range []float64{100, 110, 120} {
		records = append(records,
			record{"bulk1", down, "tls", i, values{rate: v, cost: 1}}, record{"bulk1", down, "mux2", i, values{rate: v / 2, cost: 1.5}},
			record{"ping", "idle", "tls", i, values{p50: 3}})
	}
	var out strings.Builder
	printTable(&out, m, records)
	want := `
bulk1: one stream
            MB/s            cpu-s/GB  / tls  cpu / tls
down  tls   110 (100..120)  1         1      1
down  mux2  55 (50..60)     1.50      0.500  1.50
down  mux4  -               -         -      -
`
	if out.String() != want {
		t.Errorf("printed\n%q\nwant\n%q", out.String(), want)
	}
}

func TestPrintTableHasTheCostOfADoor(t *testing.T) {
	m := measurement{name: "konnopens", about: "opens", transports: []string{egressReference, egressDropIn},
		variants: []string{"32"}, main: perSecond, against: egressReference}
	var out strings.Builder
	printTable(&out, m, []record{
		{"konnopens", "32", egressReference, 0, values{perSecond: 100, doorPerOpen: 400}},
		{"konnopens", "32", egressDropIn, 0, values{perSecond: 110, doorPerOpen: 300}},
	})
	want := `
konnopens: opens
               opens/s  door-cpu-us/open  / reference  door-cpu / reference
32  reference  100      400               1            1
32  drop-in    110      300               1.10         0.750
`
	if out.String() != want {
		t.Errorf("printed\n%s\nwant\n%s", out.String(), want)
	}
}

func TestBenchmarks(t *testing.T) {
	var out strings.Builder
	writeBenchmarks(&out, header{CPU: "c", Kernel: "k", Go: "go1"}, []record{
		{"bulk1", down, "mux2", 0, values{rate: 100.5, cost: 1.25, connections: 2}},
		{"e2eping", "idle", "tombolo-grpc", 1, values{p50: 80, p99: 90, pings: 5}},
	})
	for _, want := range []string{
		"cpu: c\nkernel: k\n", "\nUnit MB/s better=higher\n", "\nUnit cpu-s/GB better=lower\n",
		"\nBenchmarkBulk1/down/mux2 1 100.5 MB/s 1.25 cpu-s/GB\n", "\nBenchmarkE2eping/idle/tombolo-grpc 1 80 p50-us 90 p99-us\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
}

func TestProcessor(t *testing.T) {
	if got := processor("processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nmodel name\t: other\n"); got != "Some CPU @ 2 GHz" {
		t.Errorf("got %q", got)
	}
	if got := processor(""); got != "unknown" {
		t.Errorf("got %q", got)
	}
}

func TestBusyLeavesIdleOut(t *testing.T) {
	if got, want := roles.ParseBusy("cpu  100 20 30 9999 9999 4 5 6 7777 7777"), 1650*time.Millisecond; got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := roles.ParseBusy("cpu x"); got != 0 {
		t.Errorf("got %v of nonsense", got)
	}
	if _, err := os.Stat("/proc/stat"); err == nil && roles.BusyTime() <= 0 {
		t.Error("this machine has never worked")
	}
}
