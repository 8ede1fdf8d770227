// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestPolicyCheckOfANode: rules of a mesh name no cluster of a hub, so that nothing is said
// of a hub where none runs. Where rules name some, it is; and one that was named must answer.
func TestPolicyCheckOfANode(t *testing.T) {
	t.Setenv("TOMBOLO_ADMIN_SOCKET", filepath.Join(t.TempDir(), "no.sock"))
	dir := t.TempDir()
	node := policyFile(t, dir, "node.yaml", "- {name: a, callers: [node-2], allow: [\"10.0.0.0/8:443\"]}\n")
	clusters := policyFile(t, dir, "clusters.yaml", "- {name: b, clusters: [c1], allow: [\"10.0.0.0/8:443\"]}\n")
	empty := policyFile(t, dir, "empty.yaml", "  []\n")
	for _, c := range []struct {
		name string
		args []string
		exit int
		note bool
	}{
		{"rules of a node", []string{node}, 0, false},
		{"no rule", []string{empty}, 2, false},
		{"a rule that names a cluster", []string{clusters}, 0, true},
		{"one of both", []string{dir}, 2, true},
		{"a hub that is named", []string{node, "--admin-socket", filepath.Join(dir, "no.sock")}, 3, false},
	} {
		got := tombolo(t, append([]string{"policy", "check"}, c.args...)...)
		if got.code != c.exit || strings.Contains(got.out, "note: no hub answers") != c.note {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}
