// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestMeshManifest: where the cluster's secret, the join line and the configuration come from.
func TestMeshManifest(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	secret := file("secret", "FZWH04CL+JXcRQSRQaLf60Uv367aBDDfRZBSqAsLVlY=\n")
	const config = `apiVersion: tombolo.dev/v1alpha1
kind: MeshConfig
cluster: {secretFiles: [/etc/tombolo/secret/secret]}
sources: {kubernetes: {inCluster: true}, linked: {cluster: east}}
mesh: {engine: kernel}
`
	for _, tc := range []struct {
		args           []string
		want, wantNone string
	}{
		{nil, "create secret generic tombolo-mesh-secret --from-file=secret=/dev/stdin", "kind: Secret"},
		{nil, "hostNetwork: true", "--leave"},
		{nil, "- operator: Exists", "privileged: true"},
		{nil, "kubernetes.io/os: linux", "linked:"},
		{[]string{"--secret-file", secret}, "secret: FZWH04CL+JXcRQSRQaLf60Uv367aBDDfRZBSqAsLVlY=", "create secret generic"},
		{[]string{"--new-secret"}, "name: tombolo-mesh-secret", "FZWH04CL"},
		{[]string{"--new-secret", "--name", "link"}, "name: link-secret", "tombolo-mesh-secret"},
		{[]string{"--join", "-"}, "join: " + manifestJoin, "linked:"},
		{[]string{"--link-cluster", "east", "--accept", "10.0.0.0/8"}, "cluster: east", "announce:"},
		{[]string{"--config", file("mesh.yaml", config)}, "mesh: {engine: kernel}", "keep"},
		{[]string{"--toleration", "a:NoExecute", "--node-selector", "b=c"}, "effect: NoExecute", "kubernetes.io/os"},
	} {
		out, err := runManifest(newMeshManifestCommand(), manifestJoin+"\n", append(tc.args, "--image", "tombolo.local/tombolo:dev")...)
		if err != nil || !strings.Contains(out, tc.want) || strings.Contains(out, tc.wantNone) {
			t.Errorf("%v: %v, want %q and no %q in\n%s", tc.args, err, tc.want, tc.wantNone, out)
		}
	}
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"--new-secret", "--secret-file", secret}, "--new-secret excludes --secret-file"},
		{[]string{"--secret-file", filepath.Join(dir, "nope")}, "nope"},
		{[]string{"--join", "nonsense"}, "join line"},
		{[]string{"--host-network=false"}, "--host-network: is needed"},
		{[]string{"--config", file("typo.yaml", config+"typo: 1\n")}, "typo"},
		{[]string{"--config", file("engine.yaml", strings.Replace(config, "kernel", "steam", 1))}, "mesh.engine"},
		{[]string{"--config", file("where.yaml", strings.Replace(config, "/etc/tombolo/secret/", "/etc/", 1))}, "cluster.secretFiles"},
		{[]string{"--config", file("twice.yaml", config), "--keep"}, "--keep: means nothing"},
		{[]string{"--config", filepath.Join(dir, "nope.yaml")}, "nope.yaml"},
	} {
		if out, err := runManifest(newMeshManifestCommand(), "", append(tc.args, "--image", "tombolo.local/tombolo:dev")...); err == nil ||
			!strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v: %v, want %q\n%s", tc.args, err, tc.want, out)
		}
	}
}

// TestManifestsKeepTheirDefaults: flags that are not given change nothing of what a component is by default.
func TestManifestsKeepTheirDefaults(t *testing.T) {
	out, err := runManifest(newAnnounceManifestCommand(), "", "--image", "tombolo.local/tombolo:dev", "--secret", "cluster")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"hostNetwork: true", "- operator: Exists", "pod-security.kubernetes.io/enforce: privileged"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}
