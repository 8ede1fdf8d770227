// SPDX-License-Identifier: Apache-2.0

//go:build lab

package mesh

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// checkFinding is what tests read of `tombolo link check -o json`.
type checkFinding struct {
	Check  string `json:"check"`
	Peer   string `json:"peer"`
	State  string `json:"state"`
	Detail string `json:"detail"`
	Next   string `json:"next"`
}

func (n *node) linkCheck(args ...string) (found []checkFinding, failed error) {
	socket := filepath.Join(n.dir, "run", "mesh", "mesh.sock")
	out, failed := n.rig.command(n.host, []string{"TOMBOLO_MESH_SOCKET=" + socket}, n.rig.program,
		append([]string{"link", "check", "-o", "json"}, args...)...)
	var answer struct {
		Nodes []struct{ Findings []checkFinding }
	}
	if err := json.NewDecoder(strings.NewReader(out)).Decode(&answer); err != nil || len(answer.Nodes) != 1 {
		return nil, fmt.Errorf("%w, %w: %s", failed, err, out)
	}
	return answer.Nodes[0].Findings, failed
}

// finds waits until a check at a node finds what is not well, and nothing else is a problem; empty: all is well.
func (r *linkedRig) finds(n *node, what, state string) (all []checkFinding) {
	r.t.Helper()
	r.eventually(fmt.Sprintf("%s finds %q", n.name, what), nil, func() error {
		var failed error
		all, failed = n.linkCheck()
		found := false
		for _, f := range all {
			switch {
			case f.Check == what && f.State == state && f.Next != "":
				found = true
			case f.State == "problem":
				return fmt.Errorf("%+v", f)
			}
		}
		if len(all) == 0 || !found && what != "" || (failed != nil) != (state == "problem") {
			return fmt.Errorf("%+v, %w", all, failed)
		}
		return nil
	})
	return all
}

// checked has each node measure: what is well, and what somebody has broken.
func (r *linkedRig) checked(t *testing.T) {
	a, d := r.east.nodes[0], r.west.nodes[2]
	var all []func()
	for _, n := range append(r.west.nodes, a) {
		all = append(all, func() {
			counts := map[string]int{}
			for _, f := range r.finds(n, "", "") {
				counts[f.Check+" "+f.State]++
				t.Logf("%s: %+v", n.name, f)
			}
			if counts["tunnel ok"] == 0 || counts["pods ok"] == 0 || counts["mtu ok"] == 0 || counts["dns warning"] != 1 {
				t.Errorf("%s: %v", n.name, counts)
			}
		})
	}
	atOnce(all...)
	run := func(n *node, program string, args ...string) {
		t.Helper()
		if out, err := r.command(n.host, nil, program, args...); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	run(a, "sysctl", "-w", "net.ipv4.ip_forward=0")
	run(d, "nft", "add table ip early; add chain ip early post { type nat hook postrouting priority 50 ; }; "+
		"add rule ip early post oifname tombolo0 masquerade")
	atOnce(func() { r.finds(a, "forwarding", "problem") },
		func() { r.finds(d, "masquerade", "warning") }) // from d to its gateway it changes nothing
	run(a, "sysctl", "-w", "net.ipv4.ip_forward=1")
	run(d, "nft", "delete table ip early")
	run(a, "nft", "add table inet narrow; add chain inet narrow in { type filter hook prerouting priority -400 ; }; "+
		"add rule inet narrow in meta l4proto udp meta length > 1340 drop")
	r.finds(a, "mtu", "problem")
	run(a, "nft", "delete table inet narrow")
	r.finds(a, "", "")
}

// atOnce calls functions at the same time, and waits for all.
func atOnce(all ...func()) {
	var g sync.WaitGroup
	for _, f := range all {
		g.Go(f)
	}
	g.Wait()
}
