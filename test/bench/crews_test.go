// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/test/lab"
	"github.com/tombolo-io/tombolo/test/roles"
)

// testBench is a bench with windows too short to measure anything: these tests
// prove that samples are taken, not what they say.
func testBench(t *testing.T) *bench {
	t.Helper()
	l, err := lab.New("b") // short: unix sockets lie below
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	creds, err := newCredentials(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return &bench{options: options{window: 20 * time.Millisecond, rounds: 1}, lab: l, creds: creds, stderr: os.Stderr}
}

// takeSample takes one and wants each of the metrics to be above zero. On a busy
// machine nothing may move within a short window, so that grows.
func takeSample(t *testing.T, b *bench, c *crew, s sample, want ...metric) {
	t.Helper()
	m, ok := find(s.measurement)
	if !ok {
		t.Fatalf("there is no measurement %q", s.measurement)
	}
	window := b.window
	defer func() { b.window = window }()
	v, err := m.sample(t.Context(), b, c, s)
	for ; errors.Is(err, errNothing) && b.window < roles.Patience; b.window *= 4 {
		if err = c.halt(t.Context()); err == nil {
			v, err = m.sample(t.Context(), b, c, s)
		}
	}
	if err != nil {
		t.Errorf("%s %s on %s: %v", s.measurement, s.variant, c.name, err)
		return
	}
	for _, x := range want {
		if v[x] <= 0 {
			t.Errorf("%s %s on %s: %s is %v of %v", s.measurement, s.variant, c.name, x, v[x], v)
		}
	}
}

// TestTransports takes a sample of each kind on each transport.
func TestTransports(t *testing.T) {
	b := testBench(t)
	for name, conns := range map[string]float64{"tcp": 0, "tls": 0, "mux1": 1, "yamux2": 2} {
		c, err := pair(t.Context(), b, name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		takeSample(t, b, c, sample{measurement: "bulk16", variant: down, transport: name}, rate, cost)
		takeSample(t, b, c, sample{measurement: "pingbulk", variant: up, transport: name}, p50, p99, rate)
		takeSample(t, b, c, sample{measurement: "ping", variant: "idle", transport: name}, p50, p99, pings)
		takeSample(t, b, c, sample{measurement: "opens", variant: "32", transport: name}, perSecond)
		if conns > 0 {
			takeSample(t, b, c, sample{measurement: "stalls", variant: "8", transport: name}, kept, rate)
		}
		v := values{}
		if err := c.countConnections(t.Context(), v); err != nil || v[connections] != conns {
			t.Errorf("%s has %v connections (%v), want %v", name, v[connections], err, conns)
		}
		c.stop()
	}
}

// TestMuxOpensItsConnections under the load of warming up.
func TestMuxOpensItsConnections(t *testing.T) {
	b := testBench(t)
	c, err := pair(t.Context(), b, "mux2")
	if err != nil {
		t.Fatal(err)
	}
	defer c.stop()
	var n int
	if err := c.load.Call(t.Context(), opConnections, 0, nil, &n); err != nil || n < 1 || n > 2 {
		t.Errorf("%d connections, %v", n, err)
	}
}

// TestChains opens streams on each chain; warming up has moved bytes both ways.
func TestChains(t *testing.T) {
	b := testBench(t)
	for _, name := range chains() {
		c, err := chain(t.Context(), b, name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		takeSample(t, b, c, sample{measurement: "e2eping", variant: "idle", transport: name}, p50)
		if name == chainTombolo {
			takeSample(t, b, c, sample{measurement: "e2eopens", variant: "32", transport: name}, perSecond)
		}
		c.stop()
	}
}

// TestPathStandsBetween: over a path of 20 ms each way no ping is quicker than 40.
func TestPathStandsBetween(t *testing.T) {
	b := testBench(t)
	for _, name := range []string{"tls", "yamux1"} {
		c, err := over(pathSpec{Delay: 20 * time.Millisecond})(t.Context(), b, name)
		if err != nil {
			t.Fatal(err)
		}
		l, _, err := b.ping(t.Context(), c, "")
		if err != nil || l.P50 < 40*time.Millisecond {
			t.Errorf("%s: a ping takes %v, %v", name, l.P50, err)
		}
		c.stop()
	}
}

// TestCPUOfAllIsCounted: a window holds what every process of the crew worked,
// and profiles of each when they are asked for.
func TestCPUOfAllIsCounted(t *testing.T) {
	b := testBench(t)
	c, err := pair(t.Context(), b, "tls")
	if err != nil {
		t.Fatal(err)
	}
	defer c.stop()
	profile := filepath.Join(t.TempDir(), "x", "bulk")
	window := func() error { return pause(t.Context(), 10*b.window) } // in which both ends receive, also on a busy machine
	r, err := b.flow(t.Context(), c, bulkArgs{Down: 1, Up: 1}, profile, window)
	if err != nil {
		t.Fatal(err)
	}
	if r.load.CPU <= 0 || r.far.CPU <= 0 || r.cpu != r.load.CPU+r.far.CPU || r.load.Wall < b.window || r.load.Received == 0 || r.far.Received == 0 {
		t.Errorf("got %+v", r)
	}
	for _, name := range []string{"hub.cpu", "hub.allocs", "agent.cpu", "agent.allocs"} {
		info, err := os.Stat(profile + "-" + name + ".pprof")
		if err != nil || info.Size() == 0 {
			t.Errorf("no profile %s: %v", name, err)
		}
	}
}

// TestIdleStreamsHaveNoGoroutine of ours at either end, on transports without
// goroutines of their own.
func TestIdleStreamsHaveNoGoroutine(t *testing.T) {
	b := testBench(t)
	c, err := pair(t.Context(), b, "tcp")
	if err != nil {
		t.Fatal(err)
	}
	defer c.stop()
	hub, agent, err := c.memory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := c.load.Call(t.Context(), opHold, 0, 100, nil); err != nil {
		t.Fatal(err)
	}
	hub2, agent2, err := c.memory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const slack = 40 // those that are just ending
	if hub2.Goroutines > hub.Goroutines+slack || agent2.Goroutines > agent.Goroutines+slack {
		t.Errorf("goroutines grew from %d and %d to %d and %d", hub.Goroutines, agent.Goroutines, hub2.Goroutines, agent2.Goroutines)
	}
}

// TestProcessThatFails: a request that fails, one that nobody knows, a process
// that is gone and a run that is given up are told apart.
func TestProcessThatFails(t *testing.T) {
	b := testBench(t)
	p, err := roles.Spawn(b.lab.Here(), roleLoad, "probe")
	if err != nil {
		t.Fatal(err)
	}
	for op, want := range map[string]string{"dance": "does not know", opStart: "knows no transport"} {
		err := p.Call(t.Context(), op, 0, transport{Kind: "pigeon"}, nil)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "probe") {
			t.Errorf("%s: %v, want %q", op, err, want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Call(ctx, opMemory, 0, nil, nil); err == nil || !strings.Contains(err.Error(), "did not answer") {
		t.Errorf("given up: %v", err)
	}
	if err := p.Call(t.Context(), opMemory, 0, nil, nil); err == nil || !strings.Contains(err.Error(), "has ended") {
		t.Errorf("gone: %v", err)
	}
	p.End()
	p.Wait()
}

// TestGate: a quick run that measures less than a target asks for fails, and no other one.
func TestGate(t *testing.T) {
	for _, c := range []struct {
		most  float64 // of the ping of TLS
		quick bool
		code  int
	}{{1e9, true, 0}, {1e-9, true, 1}, {1e-9, false, 0}} {
		b := testBench(t)
		b.quick, b.lanes, b.only, b.fixed, b.stdout = c.quick, 2, []string{"ping"}, true, io.Discard
		b.targets = []target{{"ping", "of TLS", c.most, 0, true, against("ping", "mux2", kindTLS, p50, "idle")}}
		var err error
		if b.results, err = createResults(filepath.Join(t.TempDir(), "results.jsonl"), header{}); err != nil {
			t.Fatal(err)
		}
		short, err := b.all(t.Context())
		if err := errors.Join(err, b.results.Close()); err != nil {
			t.Fatal(err)
		}
		if code := b.gate(short); code != c.code {
			t.Errorf("quick %v, at most %v: exit code %d, want %d", c.quick, c.most, code, c.code)
		}
	}
}

// TestDoors carries streams through each front door.
func TestDoors(t *testing.T) {
	b := testBench(t)
	for _, name := range doors() {
		if err := noDoors(b); err != nil && name != doorEdge {
			t.Logf("%s is left out: %v", name, err)
			continue
		}
		c, err := behindDoor(kindHello)(t.Context(), b, name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		takeSample(t, b, c, sample{measurement: "edgebulk", variant: down, transport: name}, rate, doorCost)
		takeSample(t, b, c, sample{measurement: "edgebulk", variant: up, transport: name}, rate, doorCost)
		takeSample(t, b, c, sample{measurement: "edgeopens", variant: "32", transport: name}, perSecond, doorPerOpen)
		c.stop()
	}
	c, err := behindDoor(kindTLS)(t.Context(), b, doorEdge)
	if err != nil {
		t.Fatal(err)
	}
	defer c.stop()
	takeSample(t, b, c, sample{measurement: "edgeshakes", variant: "4", transport: doorEdge}, p50, p99, doorPerOpen)
}

// TestEgresses carries streams through each pair of a konnectivity server and an agent, in each mode.
func TestEgresses(t *testing.T) {
	b := testBench(t)
	b.tombolo = runtest.Program(t)
	if err := noEgress(b); err != nil {
		t.Fatal(err)
	}
	for mode, names := range map[string][3]string{
		modeGRPC: {"konn1", "konnping", "konnopens"}, modeConnect: {"konnc1", "konncping", "konncopens"},
	} {
		for _, which := range egresses() {
			c, err := b.egress(t.Context(), which, mode)
			if err != nil {
				t.Errorf("%s, %s: %v", which, mode, err)
				continue
			}
			takeSample(t, b, c, sample{measurement: names[0], variant: down, transport: which}, rate, doorCost)
			takeSample(t, b, c, sample{measurement: names[1], variant: "idle", transport: which}, p50)
			takeSample(t, b, c, sample{measurement: names[2], variant: "32", transport: which}, perSecond, doorPerOpen)
			if used, resident, err := c.outsideMemory(t.Context(), ""); err != nil || used <= 0 || resident <= used {
				t.Errorf("%s, %s: %v bytes in use, %v in memory, %v", which, mode, used, resident, err)
			}
			c.stop()
		}
	}
}

// TestTables asks for decisions and changes; each of the decisions is checked on the way.
func TestTables(t *testing.T) {
	r := &tables{}
	for op, args := range map[string]string{opDecide: `{"clusters": 50, "entries": 3}`, opChange: "50"} {
		got, err := r.do(op, []byte(args))
		if f, ok := got.(tableFigures); err != nil || !ok || f.PerSecond <= 0 {
			t.Errorf("%s: %+v, %v", op, got, err)
		}
	}
}
