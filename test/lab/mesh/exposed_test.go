// SPDX-License-Identifier: Apache-2.0

//go:build lab

package mesh

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// metricsPage is where metrics are documented.
const metricsPage = "../../../docs/reference/metrics.md"

// described is what is said of a metric, by the page or by a node.
type described struct {
	kind   string
	labels []string // sorted
	ipsec  bool     // only a node with IPsec gives it
}

// documented are the metrics of the page.
func documented(t *testing.T) map[string]described {
	t.Helper()
	page, err := os.ReadFile(metricsPage)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]described{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(tombolo_[a-z0-9_]+)` \\| ([a-z]+) \\| ([a-z, ]*)\\|(.*)").FindAllStringSubmatch(string(page), -1) {
		d := described{kind: row[2], ipsec: strings.HasPrefix(row[4], " With `mesh.engine: ipsec`")}
		for label := range strings.SplitSeq(row[3], ",") {
			if label = strings.TrimSpace(label); label != "" {
				d.labels = append(d.labels, label)
			}
		}
		slices.Sort(d.labels)
		out[row[1]] = d
	}
	return out
}

// families are the metrics that a node gives, with the labels of their series.
func (m metrics) families(t *testing.T) map[string]described {
	t.Helper()
	out := map[string]described{}
	series := regexp.MustCompile(`^([a-z0-9_]+)(?:\{(.*)\})? \S+\n$`)
	label := regexp.MustCompile(`([a-z_]+)="(?:[^"\\]|\\.)*"`)
	for _, line := range m {
		if words := strings.Fields(line); len(words) == 4 && words[1] == "TYPE" {
			out[words[2]] = described{kind: words[3]}
			continue
		}
		if strings.HasPrefix(line, "#") {
			continue
		}
		parts := series.FindStringSubmatch(line)
		if parts == nil {
			t.Fatalf("%q is no series", line)
		}
		name := parts[1]
		if _, is := out[name]; !is { // of a histogram
			name = strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_sum"), "_count")
		}
		d, is := out[name]
		if !is {
			t.Fatalf("%q is of no metric", line)
		}
		d.labels = nil
		for _, l := range label.FindAllStringSubmatch(parts[2], -1) {
			if l[1] != "le" {
				d.labels = append(d.labels, l[1])
			}
		}
		slices.Sort(d.labels)
		out[name] = d
	}
	return out
}

// TestMeshMetrics: a node gives each metric of the mesh that is documented, with its type and
// its labels, and none that is not; and their figures are those of its status.
func TestMeshMetrics(t *testing.T) {
	t.Parallel()
	r := ofPlaces(t, "symmetric", "symmetric", "open")
	a, b, c := r.node(r.grid.All[0], settings{}), r.node(r.grid.All[1], settings{ranges: []string{"10.71.0.0/24", "10.72.0.0/24"}}), r.node(r.grid.All[2], settings{})
	together(a, b, c)
	known(a, b, c)
	awaitState(a, b, relayed)
	awaitDirect(a, c)
	begin := time.Now()
	for _, to := range []*node{b, c} {
		f := a.flood(to.overlay4)
		r.awaitAfter(f, begin)
		f.End()
	}
	r.step("what is documented is there", func(*testing.T) { requireDocumented(a) })
	r.step("figures are those of the status", func(*testing.T) {
		a.requireFigures()
		m := a.metrics()
		if m.value(`tombolo_mesh_peers{state="relayed"}`) != 1 || m.value(`tombolo_mesh_peers{state="direct"}`) != 1 || m.sum("tombolo_mesh_peers") != 2 {
			r.t.Errorf("of one relayed and one direct peer is told:\n%s", m.of("tombolo_mesh_peers"))
		}
		// What is never direct has all its bytes by the relay; what is direct began there. They are
		// counted as they pass, and those of the status when they are looked at.
		r.eventually("bytes by the relay are those of the peer that has no other way", a.role, func() error {
			toB, toC, m := a.mustPeer(b), a.mustPeer(c), a.metrics()
			for direction, of := range map[string][2]uint64{"sent": {toB.Sent, toC.Sent}, "received": {toB.Received, toC.Received}} {
				by := m.value(`tombolo_mesh_relayed_bytes_total{direction="` + direction + `"}`)
				if of[0] == 0 || of[1] == 0 || by < float64(of[0]) || by > float64(of[0]+of[1]) {
					return fmt.Errorf("%v bytes were %s by the relay, of the peer that has no other way %d, of the other one %d", by, direction, of[0], of[1])
				}
			}
			return nil
		})
		if n := m.value("tombolo_mesh_ranges"); n != float64(2*2+2) {
			r.t.Errorf("%v ranges are counted: two addresses of two peers and two ranges are routed", n)
		}
		for series, want := range map[string]float64{
			"tombolo_mesh_in_force": 1, "tombolo_mesh_kernel_watched": 1, "tombolo_mesh_relay_hubs": 1, "tombolo_mesh_closed_ranges": 0,
			"tombolo_mesh_settings_waiting": 0, `tombolo_mesh_joins_total{outcome="ok"}`: 1, "tombolo_mesh_port_mapping": 0,
		} {
			if got := m.value(series); got != want {
				r.t.Errorf("%s is %v, want %v", series, got, want)
			}
		}
	})
	r.step("and stay so when a peer begins anew", func(*testing.T) {
		a.requireFigures()
		before, m := a.mustPeer(c), a.metrics()
		c.kill()
		together(c)
		r.eventually("there is a new handshake", a.role, func() error {
			if p, err := a.peer(c); err != nil || p.Handshake == "" || p.Handshake == before.Handshake {
				return errors.Join(err, errNotYet)
			}
			return nil
		})
		a.requireFigures()
		if was, is := m.value("tombolo_mesh_handshakes_total"), a.metrics().value("tombolo_mesh_handshakes_total"); was < 1 || is <= was {
			r.t.Errorf("%v handshakes are counted after a new one, %v before it", is, was)
		}
	})
}

// requireDocumented compares what a node gives with what is documented.
func requireDocumented(n *node) {
	t := n.rig.t
	t.Helper()
	page, given := documented(t), n.metrics().families(t)
	mesh := 0
	for name, want := range page {
		if !strings.HasPrefix(name, "tombolo_mesh_") {
			continue
		}
		mesh++
		got, is := given[name]
		switch {
		case want.ipsec && is:
			t.Errorf("%s is given by a node without IPsec", name)
		case want.ipsec:
		case !is:
			t.Errorf("%s is documented, and not given", name)
		case got.kind != want.kind || !slices.Equal(got.labels, want.labels):
			t.Errorf("%s is a %s by %q, and documented as a %s by %q", name, got.kind, got.labels, want.kind, want.labels)
		}
	}
	if mesh < 30 {
		t.Errorf("%d metrics of the mesh are found in %s", mesh, metricsPage)
	}
	for name, got := range given {
		want, is := page[name]
		switch {
		case !strings.HasPrefix(name, "tombolo_"):
		case !is:
			t.Errorf("%s is given, and not documented", name)
		case got.kind != want.kind || !slices.Equal(got.labels, want.labels):
			t.Errorf("%s is a %s by %q, and documented as a %s by %q", name, got.kind, got.labels, want.kind, want.labels)
		}
	}
}

// requireFigures waits until metrics say what the status says: they are read one after the
// other, and a packet may come in between.
func (n *node) requireFigures() {
	n.rig.t.Helper()
	n.rig.eventually("the metrics of "+n.name+" say what its status says", n.role, func() error {
		s, err := n.status()
		if err != nil {
			return err
		}
		m, err := n.scrape()
		if err != nil {
			return err
		}
		want := map[string]float64{}
		for _, state := range []string{direct, relayed, idle, "down"} {
			want[fmt.Sprintf("tombolo_mesh_peers{state=%q}", state)] = 0
		}
		shaken := 0
		for _, p := range s.Peers {
			want[fmt.Sprintf("tombolo_mesh_peers{state=%q}", p.State)]++
			want[`tombolo_mesh_bytes_total{direction="sent"}`] += float64(p.Sent)
			want[`tombolo_mesh_bytes_total{direction="received"}`] += float64(p.Received)
			if p.Handshake != "" {
				shaken++
			}
		}
		var wrong []error
		for series, is := range want {
			if got := m.value(series); got != is {
				wrong = append(wrong, fmt.Errorf("%s is %v, by the status %v", series, got, is))
			}
		}
		begun := n.said("Sending handshake initiation") + n.said("Received handshake initiation")
		if got := m.value("tombolo_mesh_handshakes_total"); got < float64(shaken) || got > float64(begun) {
			wrong = append(wrong, fmt.Errorf("%v handshakes are counted: the status has one of %d peers, and %d were begun", got, shaken, begun))
		}
		return errors.Join(wrong...)
	})
}

// mustPeer is what a node says of another one now.
func (n *node) mustPeer(other *node) peerStatus {
	n.rig.t.Helper()
	p, err := n.peer(other)
	if err != nil {
		n.rig.t.Fatal(err)
	}
	return p
}

// of are the lines of a metric.
func (m metrics) of(name string) string {
	var out strings.Builder
	for _, line := range m {
		if strings.HasPrefix(line, name) {
			out.WriteString(line)
		}
	}
	return out.String()
}
