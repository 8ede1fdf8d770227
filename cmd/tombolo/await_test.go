// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// Who pastes several lines at once asks before the service is up: every command waits, and says so.
func TestCommandsWaitForTheirService(t *testing.T) {
	t.Setenv("TOMBOLO_WAIT", "20ms")
	none := filepath.Join(t.TempDir(), "none.sock")
	for _, line := range []string{
		"status", "ping c1", "connect c1 h:1", "token create --cluster c1", "token list", "token revoke x", "certificate list",
		"egress-config c1 --mode grpc-uds", "hub backup --to -",
		"discovery status", "discovery members", "discovery watch",
		"mesh status", "mesh netcheck", "mesh explain 192.0.2.1", "mesh forget n", "mesh keys rotate", "mesh ping n",
	} {
		o := tombolo(t, append(strings.Fields(line), "--admin-socket", none)...)
		if o.code != 3 || strings.Count(o.err, "note: nobody answers at "+none+" yet; waiting up to 20ms\n") != 1 {
			t.Errorf("tombolo %s: exit %d\n%s", line, o.code, o.err)
		}
		if strings.Contains(o.err, "http://") {
			t.Errorf("tombolo %s tells an address that is none: %s", line, o.err)
		}
	}
}

// A member that was started just before has no key yet.
func TestMemberVerbsWaitForTheKey(t *testing.T) {
	t.Setenv("TOMBOLO_WAIT", "20ms")
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	must(t, "discovery", "secret", "create", secret)
	config := writeText(t, filepath.Join(dir, "mesh.yaml"), fmt.Sprintf("apiVersion: tombolo.dev/v1alpha1\nkind: MeshConfig\n"+
		"cluster: {secretFiles: [%q]}\nnode: {name: a, stateDir: %q}\n", secret, filepath.Join(dir, "a")))
	for _, verb := range []string{"show", "rotate"} {
		o := tombolo(t, "discovery", "member", verb, "--config", config)
		if o.code != 1 || strings.Count(o.err, "waiting up to 20ms\n") != 1 || !strings.Contains(o.err, "not_found") {
			t.Errorf("member %s: exit %d\n%s", verb, o.code, o.err)
		}
	}
}

// What is printed for nodes is the line, and the program takes it: it is no command, for the hub does not
// know the cluster's secret and services.
func TestTokenForNodesIsALine(t *testing.T) {
	startHub(t)
	for _, flag := range []string{"--node", "--node=worker-1"} {
		line := must(t, "token", "create", "--cluster", "c1", flag)
		if !strings.HasPrefix(line, "tombolo://") || strings.Count(line, "\n") != 1 {
			t.Errorf("%s printed %q", flag, line)
		}
		o := tombolo(t, "mesh", "--secret-file", filepath.Join(t.TempDir(), "none"), "--join", strings.TrimSpace(line))
		if strings.Contains(o.err, "join") {
			t.Errorf("the line is refused: %s", o.err)
		}
	}
	if out := must(t, "token", "create", "--cluster", "c1", "--node", "-o", "json"); strings.Contains(out, `"command"`) {
		t.Errorf("a command that cannot run: %s", out)
	}
	if line := must(t, "token", "create", "--cluster", "c1"); !strings.HasPrefix(line, "tombolo agent --join tombolo://") {
		t.Errorf("for agents: %q", line)
	}
}
