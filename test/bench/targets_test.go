// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

func sampled(measurement, variant, transport string, m metric, byRound ...float64) (out []record) {
	for i, v := range byRound {
		out = append(out, record{measurement, variant, transport, i, values{m: v}})
	}
	return out
}

func TestJudge(t *testing.T) {
	atLeast := target{name: "rate", must: 0.65, stretch: 0.8, from: against("bulk1", "mux2", "tls", rate, down, up)}
	atMost := target{name: "cpu", must: 1.35, stretch: 1.15, atMost: true, from: against("bulk1", "mux2", "tls", rate, down)}
	size := target{name: "size", must: 2.5, atMost: true, from: []figure{{of: key{"memstreams", "10000", "mux1"}, m: hubBytes, divided: 1000}}}
	tls := append(sampled("bulk1", down, "tls", rate, 100, 200, 100, 100, 100, 100, 100, 100, 100),
		sampled("bulk1", up, "tls", rate, 100, 100, 100)...)
	mux := func(down_, up_ []float64) []record {
		return append(append(sampled("bulk1", down, "mux2", rate, down_...), sampled("bulk1", up, "mux2", rate, up_...)...), tls...)
	}
	for _, c := range []struct {
		name    string
		t       target
		records []record
		value   float64
		variant string
		want    verdict
	}{
		{"the worst direction counts", atLeast, mux([]float64{90, 180, 90}, []float64{70, 70, 10}), 0.7, "bulk1 up", good},
		{"ratios are within a round", atLeast, mux([]float64{90, 180, 10}, []float64{95, 95, 95}), 0.9, "bulk1 down", better},
		{"below the must", atLeast, mux([]float64{90, 180, 90}, []float64{60, 60, 90}), 0.6, "bulk1 up", short},
		{"exactly the must", atLeast, mux([]float64{65, 130, 65}, []float64{65, 65, 65}), 0.65, "bulk1 down", good},
		{"at most, met", atMost, mux([]float64{130, 260, 130}, nil), 1.3, "bulk1 down", good},
		{"at most, stretch", atMost, mux([]float64{110, 220, 110}, nil), 1.1, "bulk1 down", better},
		{"at most, short", atMost, mux([]float64{140, 280, 140}, nil), 1.4, "bulk1 down", short},
		{"near: most rounds meet it", atMost, mux([]float64{136, 272, 136, 136, 140, 130, 130, 130, 150}, nil), 1.36,
			"bulk1 down", near},
		{"near: one round of nine is not enough", atMost, mux([]float64{136, 272, 136, 136, 140, 136, 136, 130, 150}, nil),
			1.36, "bulk1 down", short},
		{"three rounds say nothing", atMost, mux([]float64{136, 272, 130}, nil), 1.36, "bulk1 down", short},
		{"an absolute figure without stretch", size, sampled("memstreams", "10000", "mux1", hubBytes, 770), 0.77, "memstreams 10000", good},
		{"an absolute figure, short", size, sampled("memstreams", "10000", "mux1", hubBytes, 2600), 2.6, "memstreams 10000", short},
	} {
		v, variant, got := c.t.judge(c.records)
		if got != c.want || v.Median != c.value || variant != c.variant {
			t.Errorf("%s: %v of %s is %q, want %v of %s, %q", c.name, v.Median, variant, got, c.value, c.variant, c.want)
		}
	}
	if _, _, got := atLeast.judge(mux([]float64{90, 180, 90}, nil)); got != short {
		t.Errorf("a direction without samples gives %q: what was not measured is not met", got)
	}
}

// TestOutside: the places are those of the sign test.
func TestOutside(t *testing.T) {
	for n, want := range map[int]int{0: 0, 1: 0, 5: 0, 6: 1, 8: 1, 9: 2, 11: 2, 12: 3, 15: 4, 25: 8, 100: 40} {
		if got := outside(n); got != want {
			t.Errorf("of %d values: %d, want %d", n, got, want)
		}
	}
}

// TestTargetsAreMeasured: the quick run has every figure that a target looks at,
// and each names a measurement, a variant and a transport that exist.
func TestTargetsAreMeasured(t *testing.T) {
	for _, lanes := range []int{2, 4} {
		plan := quickPlan(lanes)
		seen := map[string]bool{}
		for _, x := range targets(lanes) {
			if line := x.name + x.what; seen[line] {
				t.Errorf("target %q stands twice", line)
			} else {
				seen[line] = true
			}
			if x.stretch != 0 && !x.met(x.stretch, x.must) {
				t.Errorf("%s: the stretch %v is easier than the must %v", x.name, x.stretch, x.must)
			}
			for _, f := range x.from {
				for _, k := range []key{f.of, f.to} {
					if k == (key{}) {
						continue
					}
					m, ok := find(k.measurement)
					if !ok || !slices.Contains(m.variants, k.variant) || checkTransport(k.transport) != nil ||
						familyOf(k.transport) != m.family {
						t.Errorf("%s: %+v is no sample of a measurement", x.name, k)
					}
					q := plan[k.measurement]
					if !slices.Contains(q.transports, k.transport) || !slices.Contains(q.variants, k.variant) {
						t.Errorf("%s: the quick run does not take %+v", x.name, k)
					}
				}
			}
		}
	}
}

// TestCloseTargets: what is close to its bound has nine rounds or more, and no window of the
// quick run is too short to say anything.
func TestCloseTargets(t *testing.T) {
	o, err := parseOptions([]string{"-quick"})
	if err != nil {
		t.Fatal(err)
	}
	if o.window < 500*time.Millisecond {
		t.Errorf("windows of %v", o.window)
	}
	plan := quickPlan(o.lanes)
	for _, name := range []string{"bulk16", "e2e16", "e2eopens"} {
		if got := plan[name].rounds; got < 9 {
			t.Errorf("%s has %d rounds", name, got)
		}
	}
}

// TestPrintTargets: one line for each target, in the words of the verdicts.
func TestPrintTargets(t *testing.T) {
	all := []target{
		{"one", "of TLS", 0.5, 0.9, false, against("bulk1", "mux2", "tls", rate, down)},
		{"two", "KB", 2.5, 0, true, []figure{{of: key{"memstreams", "10000", "mux1"}, m: hubBytes, divided: 1000}}},
		{"three", "of TLS", 0.9, 0, false, against("loss", "mux4", "tls", rate, down)},
		{"four", "of TLS", 2, 0, true, against("ping", "mux2", "tls", p50, "idle")},
	}
	records := slices.Concat(sampled("bulk1", down, "tls", rate, 10, 10), sampled("bulk1", down, "mux2", rate, 5, 7),
		sampled("memstreams", "10000", "mux1", hubBytes, 3000))
	var out strings.Builder
	failed := printTargets(&out, all, records, []string{"bulk1", "memstreams"}, map[string]error{"loss": errors.New("no root")})
	want := `one, of TLS    0.600 (0.500..0.700)  >= 0.500 (0.900)  ok
two, KB        3                     <= 2.50           short
three, of TLS  -                     >= 0.900          skipped: no root
`
	if out.String() != want || !failed {
		t.Errorf("failed %v, printed\n%s\nwant\n%s", failed, out.String(), want)
	}
	out.Reset()
	failed = printTargets(&out, all[3:], nil, []string{"ping"}, nil)
	if !failed || !strings.Contains(out.String(), "short") {
		t.Errorf("a measurement without samples is not short: failed %v, %q", failed, out.String())
	}
}
