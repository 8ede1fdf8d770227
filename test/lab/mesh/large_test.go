// SPDX-License-Identifier: Apache-2.0

//go:build lab

package mesh

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/test/lab"
)

// largeSize is how many members there are, and largeRest how long a node is looked at
// at rest: `make bench-mesh-large` has others.
const (
	largeSize = 1000
	largeRest = 3 * time.Second
)

// TestMeshLarge has three nodes in a mesh of a thousand members. All of them are
// routed, and none of those that nobody talks to gets a packet. Members that come and go cost what
// is theirs. What a node at rest costs, it prints.
func TestMeshLarge(t *testing.T) {
	size, rest := largeSize, largeRest
	long := os.Getenv("TOMBOLO_LAB_MEMBERS") != ""
	if long {
		n, err := strconv.Atoi(os.Getenv("TOMBOLO_LAB_MEMBERS"))
		if err != nil {
			t.Fatal(err)
		}
		size, rest = n, time.Minute
	}
	r := ofPlaces(t, "open", "open", "open", "open")
	c := r.newCrowd(size)
	swallowed := r.swallow()
	began := time.Now()
	c.come(size - 3)
	t.Logf("%d members are announced after %v", len(c.members), time.Since(began).Round(time.Millisecond))

	var nodes []*node
	for i, place := range r.grid.All[:3] {
		// Lazy below the default size too: a smaller mesh is measured likewise.
		nodes = append(nodes, r.node(place, quiet(fmt.Sprintf("10.%d.0.0/24", i+1), min(limit.MeshLazy, size-3))))
	}
	began = time.Now()
	together(nodes...)
	for _, n := range nodes {
		n.awaitPeers(size - 1)
	}
	t.Logf("all nodes know all members %v after their start", time.Since(began).Round(time.Millisecond))
	a, b, third := nodes[0], nodes[1], nodes[2]
	a.awaitSteady()
	all := r.step("all are routed", func(t *testing.T) {
		for _, n := range nodes {
			n.requireRouted(c.members)
			m := n.metrics()
			// Sets, chains and the like once, and elements with each piece of what is told.
			if steps := m.sum("tombolo_mesh_steps_total"); steps > 100+float64(size)/20 {
				t.Errorf("%s has changed the kernel in %.0f steps", n.name, steps)
			}
			if m.sum("tombolo_mesh_repairs_total") > 0 {
				t.Errorf("%s has put something back", n.name)
			}
			t.Logf("%s: %.0f steps in %.0f changes of the kernel", n.name, m.sum("tombolo_mesh_steps_total"), m.sum("tombolo_mesh_applies_total"))
		}
	})
	if !all {
		return
	}
	r.step("one comes and goes", func(*testing.T) { playComing(c, a, size) })
	if long {
		r.step("many come and go", func(*testing.T) { c.churn(a, size) })
	}
	r.step("at rest", func(*testing.T) { c.measure(rest, nodes...) })
	r.step("nobody gets a packet", func(t *testing.T) {
		requireSilence(t, swallowed)
		for _, n := range nodes {
			n.requireAllIdle()
		}
	})
	r.step("one wakes", func(t *testing.T) {
		playWaking(a, b, third, size)
		requireSilence(t, swallowed)
		if long && size == largeSize { // it takes ten minutes
			awaitLetGo(a, b, size)
		}
	})
	r.step("without laziness", func(t *testing.T) {
		began := time.Now()
		busy := r.node(r.grid.All[3], quiet("10.4.0.0/24", min(2*size, limit.MeshLazyMost)))
		together(busy)
		busy.awaitPeers(size)
		if long {
			c.measure(rest, busy)
		}
		r.eventually("the counters see packets to each member", busy.role, func() error { // or what they do not see says nothing
			if n := packets(t, swallowed); n < uint64(size-3) {
				return fmt.Errorf("%d packets to %d members", n, size-3)
			}
			return nil
		})
		t.Logf("a node that is not lazy: %d packets to those that are away, %.0f probes, %v after its start",
			packets(t, swallowed), busy.metrics().sum("tombolo_mesh_probes_sent_total"), time.Since(began).Round(time.Second))
	})
}

// playWaking has one node talk to another: the two wake, and nobody else.
func playWaking(a, b, third *node, size int) {
	r, t := a.rig, a.rig.t
	t.Helper()
	began := time.Now()
	f := a.flood(b.overlay4)
	t.Logf("first byte of a sleeping peer after %v", r.awaitAfter(f, began).Round(time.Millisecond))
	awaitState(a, b, direct)
	f.End()
	for n, want := range map[*node]int{a: size - 2, b: size - 2, third: size - 1} {
		if got := n.idle(); got != want {
			t.Errorf("%s has %d idle peers, want %d", n.name, got, want)
		}
	}
}

// quiet are the settings of a node in a large mesh, whose log says little: with a thousand
// members its details are most of what it does.
func quiet(announces string, lazyAbove int) settings {
	return settings{ranges: []string{announces}, mesh: map[string]any{"lazyAbove": lazyAbove},
		more: map[string]map[string]any{"log": {"level": "info"}}}
}

// swallow makes a black hole of where the crowd is said to be, at each router.
func (r *rig) swallow() (all []*lab.Filter) {
	r.t.Helper()
	for _, place := range r.grid.All {
		for _, network := range crowdNetworks() {
			f := lab.Swallow(place.Router, network)
			if err := f.On(); err != nil {
				r.t.Fatal(err)
			}
			all = append(all, f)
		}
	}
	return all
}

func packets(t *testing.T, all []*lab.Filter) (sum uint64) {
	t.Helper()
	for _, f := range all {
		n, err := f.Packets()
		if err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	return sum
}

func requireSilence(t *testing.T, swallowed []*lab.Filter) {
	t.Helper()
	if n := packets(t, swallowed); n > 0 {
		t.Errorf("%d packets were sent to members that nobody talks to", n)
	}
}

// requireAllIdle checks that a node has neither probed nor shaken hands with anybody, by any way.
func (n *node) requireAllIdle() {
	t := n.rig.t
	t.Helper()
	m := n.metrics()
	for _, name := range []string{"tombolo_mesh_probes_sent_total", "tombolo_mesh_handshakes_total", "tombolo_mesh_bytes_total"} {
		if m.sum(name) > 0 {
			t.Errorf("%s, to whom nobody has talked, has %s %.0f", n.name, name, m.sum(name))
		}
	}
	if got, all := n.idle(), int(m.sum("tombolo_mesh_peers")); got != all {
		t.Errorf("%s has %d idle of %d peers", n.name, got, all)
	}
}

// awaitPeers waits until a node has so many.
func (n *node) awaitPeers(want int) {
	n.rig.t.Helper()
	n.rig.eventually(fmt.Sprintf("%s has %d peers", n.name, want), n.role, func() error {
		m, err := n.scrape()
		if got := m.sum("tombolo_mesh_peers"); err == nil && int(got) != want {
			err = fmt.Errorf("it has %.0f", got)
		}
		return err
	})
}

// awaitSteady waits until a node's kernel has all that it knows: between two looks, which are
// further apart than two changes, nothing is changed.
func (n *node) awaitSteady() {
	n.rig.t.Helper()
	last := -1.0
	var at time.Time
	n.rig.eventually(n.name+" is done", n.role, func() error {
		if steps := n.metrics().sum("tombolo_mesh_steps_total"); steps != last {
			last, at = steps, time.Now()
		}
		if time.Since(at) < limit.RoutingRestMost {
			return errNotYet
		}
		return nil
	})
}

// awaitLetGo waits until two nodes that talked have let go of each other.
func awaitLetGo(a, b *node, size int) {
	t := a.rig.t
	t.Helper()
	began := time.Now()
	for time.Since(began) < 2*limit.PathIdle+time.Minute {
		if a.idle() == size-1 && b.idle() == size-1 {
			t.Logf("let go %v after the last packet", time.Since(began).Round(time.Second))
			return
		}
		select {
		case <-a.process.Done():
			t.Fatal("it has ended")
		case <-time.After(time.Second):
		}
	}
	t.Errorf("after %v they have not let go of each other", time.Since(began))
}

// playComing has one member come and go, and looks at what that changes in a node's kernel.
func playComing(c *crowd, n *node, size int) {
	r, t := c.r, c.r.t
	t.Helper()
	monitor := r.monitor(n)
	for _, move := range []struct {
		name string
		do   func(int)
		want int
	}{{"comes", c.come, size}, {"goes", c.leave, size - 1}} {
		before := n.metrics()
		move.do(1)
		n.awaitPeers(move.want)
		r.eventually("the kernel has it", n.role, func() error {
			if n.metrics().sum("tombolo_mesh_steps_total") == before.sum("tombolo_mesh_steps_total") {
				return errNotYet
			}
			return nil
		})
		after := n.metrics()
		steps, ranges := after.sum("tombolo_mesh_steps_total")-before.sum("tombolo_mesh_steps_total"), after.sum("tombolo_mesh_ranges")-before.sum("tombolo_mesh_ranges")
		// Of each family: what is routed, the overlay address, and the address outside of IPv4.
		if steps < 1 || steps > 5 || ranges != 4 && ranges != -4 {
			t.Errorf("one %s: %.0f steps, %.0f ranges", move.name, steps, ranges)
		}
		t.Logf("one of %d %s: %.0f steps", size, move.name, steps)
	}
	// The kernel's own word: an element that comes or goes is a line, and so is a rule.
	if lines := monitor(); len(lines) != 10 {
		t.Errorf("one that comes and goes changes %d elements, want 10:\n%s", len(lines), strings.Join(lines[:min(len(lines), 40)], "\n"))
	}
}

// monitor writes down what changes in a node's nftables, until it is asked for it.
func (r *rig) monitor(n *node) (ended func() []string) {
	r.t.Helper()
	file, err := os.Create(filepath.Join(r.dir, n.name+".nft"))
	if err != nil {
		r.t.Fatal(err)
	}
	defer file.Close()
	cmd := exec.Command("nft", "monitor")
	cmd.Stdout = file
	p, err := n.host.Start(cmd)
	if err != nil {
		r.t.Fatal(err)
	}
	read := func() (lines []string) {
		text, err := os.ReadFile(file.Name())
		if err != nil {
			r.t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if !strings.HasPrefix(line, "#") && !strings.Contains(line, "monitor-") {
				lines = append(lines, strings.TrimSpace(line))
			}
		}
		return lines
	}
	mark := func(name string) { // and wait until it is written down
		seen := func() bool {
			text, err := os.ReadFile(file.Name())
			return err == nil && strings.Contains(string(text), name)
		}
		r.eventually("nft monitor tells of "+name, nil, func() error {
			if seen() {
				return nil
			}
			_, err := r.command(n.host, nil, "nft", "add table ip "+name+"; delete table ip "+name)
			return errors.Join(err, errNotYet)
		})
	}
	mark("monitor-begins")
	return func() []string {
		mark("monitor-ends")
		lines := read()
		if err := p.Stop(stopGrace); err != nil && !strings.Contains(err.Error(), "signal") {
			r.t.Error(err)
		}
		return lines
	}
}

// requireRouted checks the sets of a node's nftables for the ranges and addresses of all.
func (n *node) requireRouted(all []*absent) {
	r := n.rig
	r.t.Helper()
	has := func(set string) map[string]bool {
		out, err := r.command(n.host, nil, "nft", "-j", "list", "set", "inet", "tombolo_mesh", set)
		if err != nil {
			r.t.Fatal(err)
		}
		return elements(r.t, out)
	}
	sets := map[string]map[string]bool{}
	for _, set := range []string{"routed4", "routed6", "peers4", "peers6"} {
		sets[set] = has(set)
	}
	missing := 0
	for _, m := range all {
		four, _ := netip.AddrFromSlice(m.says.GetOverlay4())
		six, _ := netip.AddrFromSlice(m.says.GetOverlay6())
		for set, want := range map[string]string{"routed4": m.ranges()[0].String(), "routed6": m.ranges()[1].String(), "peers4": four.String(), "peers6": six.String()} {
			if !sets[set][want] {
				missing++
			}
		}
	}
	if missing > 0 {
		r.t.Errorf("%s lacks %d ranges of %d members: %d and %d ranges, %d and %d addresses", n.name, missing, len(all),
			len(sets["routed4"]), len(sets["routed6"]), len(sets["peers4"]), len(sets["peers6"]))
	}
}

// elements reads a set of `nft -j`.
func elements(t *testing.T, text string) map[string]bool {
	t.Helper()
	var list struct {
		Nftables []struct {
			Set *struct {
				Elem []json.RawMessage `json:"elem"`
			} `json:"set"`
		} `json:"nftables"`
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{}
	for _, object := range list.Nftables {
		if object.Set == nil {
			continue
		}
		for _, raw := range object.Set.Elem {
			var one string
			var prefix struct {
				Prefix *struct {
					Addr string `json:"addr"`
					Len  int    `json:"len"`
				} `json:"prefix"`
			}
			switch {
			case json.Unmarshal(raw, &one) == nil:
				out[one] = true
			case json.Unmarshal(raw, &prefix) == nil && prefix.Prefix != nil:
				out[fmt.Sprintf("%s/%d", prefix.Prefix.Addr, prefix.Prefix.Len)] = true
			default:
				out[string(raw)] = true
			}
		}
	}
	return out
}
