// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tombolo-io/tombolo/test/roles"
)

// TestMain lets the driver start this program again in a role.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == roles.Flag {
		main()
		return
	}
	// With the race detector a process waits a second before it ends; ours are many.
	os.Setenv("GORACE", strings.TrimSpace(os.Getenv("GORACE")+" atexit_sleep_ms=0"))
	goleak.VerifyTestMain(m)
}

// tiny measures nothing: it proves that every figure is taken.
func tiny() size {
	return size{
		sessions: []int{20, 50}, streams: []int{50, 100}, carriers: 5, dialled: 10, rate: 100, dialFor: 100 * time.Millisecond,
		storm: []int{20, 50}, policies: []int{5, 20}, changes: 2, noisyRounds: 1, noisyFor: 100 * time.Millisecond,
		soak: 1500 * time.Millisecond, sample: 20 * time.Millisecond, settle: 50 * time.Millisecond,
		meeting: meetingSize{members: []int{200, 300}, large: 200, settle: 50 * time.Millisecond, joins: 5, rounds: 1, updates: 50 * time.Millisecond, watchers: 40, watched: 3},
	}
}

// TestEveryLine takes all measurements at a tiny size. Each line is there, and
// none lacks its figure; whether it is met says nothing here.
func TestEveryLine(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	r := &runner{options: options{size: tiny(), out: out, profile: true}, stdout: io.Discard, stderr: io.Discard}
	if err := r.all(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"RSS of an idle session, 50", "RSS of an idle stream, 100", "p99 of a dial, 100 a second, evenly", "p99 of a dial, 100 a second, 80 % to 1 %",
		"storm of 50 agents", "streams of another hub", "one change of a policy of 20 clusters, of that of 5", "p99 of pings beside a flood with bounds", "throughput beside it, without bounds",
		"throughput beside it, with the default bounds",
		"RSS, growth", "live heap, growth", "goroutines, growth", "descriptors, growth",
		"RSS of a member beyond its own bytes, 300 in clusters of 100", "live memory of a member beyond its own bytes, 300 in clusters of 100",
		"RSS of a member beyond its own bytes, 200 in one cluster", "live memory of a member beyond its own bytes, 200 in one cluster",
		"p99 from a join until 10 watchers see it, with 300 members elsewhere", "updates a second, of an empty echo with the same messages", "signed updates a second", "40 watchers of 3 clusters come back, of plain gRPC",
	} {
		i := slices.IndexFunc(r.lines, func(l line) bool { return strings.Contains(l.name, want) })
		if i < 0 {
			t.Errorf("there is no line %q", want)
		} else if l := r.lines[i]; math.IsNaN(l.value) {
			t.Errorf("%q has no figure: %s", want, l)
		}
	}
	if info, err := os.Stat(filepath.Join(out, "profiles", "scale-watchers-40.mutex.pprof")); err != nil || info.Size() == 0 {
		t.Errorf("the profile of the watchers' locks: %v, %v", info, err)
	}
	data, err := os.ReadFile(filepath.Join(out, "scale.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"measurement":"sessions","at":50`, `"measurement":"storm","at":50`, `"measurement":"members","at":300`, `"measurement":"watchers","at":40`, `"verdict":"`} {
		if !strings.Contains(string(data), want) {
			t.Errorf("the file has no %s", want)
		}
	}
}

func TestVerdicts(t *testing.T) {
	for _, c := range []struct {
		l    line
		want verdict
	}{
		{line{value: 2, target: 2}, good},
		{line{value: 2.1, target: 2}, short},
		{line{value: 0.9, target: 0.9, atLeast: true}, good},
		{line{value: 0.8, target: 0.9, atLeast: true}, short},
		{line{value: math.NaN(), target: 2}, short},
		{line{value: math.NaN(), target: 2, why: "one hub"}, absent},
	} {
		if got := c.l.verdict(); got != c.want {
			t.Errorf("%s is %s, want %s", c.l, got, c.want)
		}
	}
	var text strings.Builder
	if err := printLines(&text, []line{{name: "one", value: 1.234, target: 2, unit: " KB"}, {name: "another", target: 1, why: "one hub"}}); err != nil {
		t.Fatal(err)
	}
	if want := "one      1.23 KB  <= 2 KB  ok\nanother  -        <= 1     n/a: one hub\n"; text.String() != want {
		t.Errorf("printed\n%swant\n%s", text.String(), want)
	}
}

// TestTheTrend: a slope is found, noise is none, and noise that drifts slowly is
// not taken for many independent samples.
func TestTheTrend(t *testing.T) {
	var x, up, flat, wave []float64
	for i := range 600 {
		noise := float64(i*7919%13) - 6
		x = append(x, float64(i))
		up, flat = append(up, 1000+float64(i)+noise), append(flat, 1000+noise)
		wave = append(wave, 1000+50*math.Sin(float64(i)/100*math.Pi))
	}
	if s := regress(x, up); s.slope-s.within <= 0 || math.Abs(s.slope-1) > 0.05 {
		t.Errorf("growth by one each: %+v", s)
	}
	for name, y := range map[string][]float64{"noise": flat, "a slow wave": wave} {
		if s := regress(x, y); s.slope-s.within > 0 {
			t.Errorf("%s is taken for growth: %+v", name, s)
		}
	}
	if s := regress(x[:5], up[:5]); !math.IsNaN(s.slope) {
		t.Errorf("five samples give %+v", s)
	}
}

func TestTheMiddle(t *testing.T) {
	for _, c := range []struct {
		all  []float64
		want float64
	}{{[]float64{3}, 3}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 1, 3, 2}, 2.5}} {
		if got := middle(c.all); got != c.want {
			t.Errorf("of %v it is %v, want %v", c.all, got, c.want)
		}
	}
}

func TestTheHistogram(t *testing.T) {
	var h histogram
	for i := range 1000 {
		h.add(time.Duration(i+1) * time.Millisecond)
	}
	l := h.latency()
	near := func(got, want time.Duration) bool { return math.Abs(float64(got)/float64(want)-1) < 0.011 }
	if l.Count != 1000 || !near(l.P50, 500*time.Millisecond) || !near(l.P99, 990*time.Millisecond) || l.Max != time.Second {
		t.Errorf("got %+v", l)
	}
	h.add(time.Hour) // beyond the last class
	if l := h.latency(); l.Max != time.Hour || l.Count != 1001 {
		t.Errorf("got %+v", l)
	}
}

// TestTheCurve: 1 is a straight line, and what each one costs counts all.
func TestTheCurve(t *testing.T) {
	at := func(n int, bytes int64) point { return point{n, look{Settled: bytes, Resident: 2 * bytes}} }
	c := curve{points: []point{at(1000, 1000), at(2000, 2000)}}
	if c.each() != 2 || c.bend() != 1 {
		t.Errorf("a straight line: %v each, bend %v", c.each(), c.bend())
	}
	c.points = append(c.points, at(3000, 6000))
	if c.bend() != 2 {
		t.Errorf("a line that bends upwards has %v", c.bend())
	}
}

func TestTheCommandLine(t *testing.T) {
	o, err := parseOptions([]string{"-quick", "-only", "storm,soak", "-soak", "90s"})
	if err != nil || !o.quick || o.soak != 90*time.Second || !slices.Equal(o.only, []string{"storm", "soak"}) || o.sessions[len(o.sessions)-1] != 2000 {
		t.Errorf("got %+v, %v", o, err)
	}
	if o, err := parseOptions(nil); err != nil || o.soak != 20*time.Minute || o.sessions[len(o.sessions)-1] != 10_000 {
		t.Errorf("got %+v, %v", o, err)
	}
	for _, bad := range [][]string{{"-only", "nothing"}, {"-soak", "-1s"}, {"extra"}} {
		if _, err := parseOptions(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func TestARoleThatFails(t *testing.T) {
	if _, err := (&hubRole{}).Do("nothing", nil); !errors.Is(err, roles.ErrUnknown) {
		t.Errorf("got %v", err)
	}
	if err := runRole("nothing"); err == nil {
		t.Error("an unknown role was accepted")
	}
}
