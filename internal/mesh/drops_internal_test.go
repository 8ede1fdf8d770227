// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-io/tombolo/internal/discovery/seal"
	"github.com/tombolo-io/tombolo/internal/mesh/meshconf"
	"github.com/tombolo-io/tombolo/internal/mesh/tunnel"
)

// TestWhatTheTunnelDropsIsTold: every reason is a series from the start, and has its own count
// in metrics and status.
func TestWhatTheTunnelDropsIsTold(t *testing.T) {
	const name = "tombolo_mesh_tunnel_dropped_packets_total"
	reg, dir := prometheus.NewRegistry(), t.TempDir()
	m, err := New(Config{Config: meshconf.Default(), ID: "m", StateDir: dir, RunDir: dir, Keys: slices.All([]seal.Keys{keysFrom(t, "n")})},
		Options{Log: slog.New(slog.DiscardHandler), Reg: reg, Members: &knower{}, Announcer: &knower{}, Services: &knower{}})
	if err != nil {
		t.Fatal(err)
	}
	check := func(when string, want map[string]int) {
		t.Helper()
		reasons := slices.Sorted(slices.Values([]string{"link", "no_path", "probes", "queue", "read", "no_peer", "stray", "stun", "unknown", "unsent"}))
		var lines []string
		for _, r := range reasons {
			lines = append(lines, fmt.Sprintf("%s{%s} %d", name, r, want[r]))
		}
		if got := series(t, reg, name); got != strings.Join(lines, ", ") {
			t.Errorf("%s: %s\nwant %s", when, got, strings.Join(lines, ", "))
		}
	}
	check("before the node is up", nil)
	socket, err := tunnel.OpenSocket(t.Context(), tunnel.SocketConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := socket.Close(); err != nil {
			t.Error(err)
		}
	}()
	tun := &tunnel.Tun{}
	p := &parts{way: way{carrier: carrier{counters: userspace{nil, socket, tun}}}}
	m.parts.Store(p)
	c := socket.Counts()
	want := map[string]int{}
	for i, d := range []struct {
		reason string
		add    func(uint64) uint64
	}{
		{"unknown", c.Unknown.Add}, {"stray", c.Stray.Add}, {"no_peer", c.Unrelayed.Add}, {"no_path", c.NoPath.Add}, {"unsent", c.Unsent.Add},
		{"probes", c.Probes.Add}, {"stun", c.STUN.Add}, {"queue", c.Inject.Add}, {"link", tun.Lost.Add}, {"read", c.Failed.Add},
	} {
		want[d.reason] = i + 1
		d.add(uint64(i + 1))
		check(d.reason, want)
	}
	shown := tunnelDropped(p.drops())
	for _, d := range shown {
		if int(d.Packets) != want[d.Reason] {
			t.Errorf("the status has %d of %s, want %d", d.Packets, d.Reason, want[d.Reason])
		}
	}
	if len(shown) != len(want) {
		t.Errorf("the status has %v", shown)
	}
	m.parts.Store(&parts{way: way{carrier: carrier{counters: inKernel{}}}})
	check("with the kernel's WireGuard", nil)
}
