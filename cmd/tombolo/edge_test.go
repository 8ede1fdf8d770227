// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/edge"
)

// edgeFiles writes the configuration of an edge with one protected tenant c1, and a tenant that claims its name.
func edgeFiles(t *testing.T, dir string) (config, listen string) {
	t.Helper()
	listen = runtest.Address(8443)
	tenant := "apiVersion: tombolo.dev/v1alpha1\nkind: EdgeTenant\nmetadata: {name: %}\nspec:\n  protected: true\n  ways:\n" +
		"  - {flow: api, names: [c1.example.org], upstreams: ['192.0.2.1:6443']}\n"
	for name, text := range map[string]string{
		"tenants/c1.yaml": strings.Replace(tenant, "%", "c1", 1), "tenants/c2.yaml": strings.Replace(tenant, "%", "c2", 1),
		"edge.yaml": "apiVersion: tombolo.dev/v1alpha1\nkind: EdgeConfig\nrunDir: " + dir + "\nhealthListen: " +
			runtest.Address(8447) + "\ntenants: [" + dir + "/tenants]\nlisteners:\n- {name: tls, listen: '" + listen +
			"', protocol: tls}\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "edge.yaml"), listen
}

func TestEdgeStatus(t *testing.T) {
	dir := runtest.Dir(t)
	config, listen := edgeFiles(t, dir)
	p := startProcess(t, "edge", "--config", config)
	p.Says(t, "edge is ready")
	o := tombolo(t, "edge", "status", "--admin-socket", edge.AdminSocket(dir))
	for _, want := range []string{
		"tls listens on " + listen + " (tls)\n", "1 tenant in force\n", "no policy is configured",
		"/tenants/c2.yaml is not in force since ", "c2.yaml:7:25: ", `name "c1.example.org" is claimed by tenant "c1"`,
	} {
		if o.code != 0 || !strings.Contains(o.out, want) {
			t.Errorf("%+v, want %q", o, want)
		}
	}
	t.Setenv("TOMBOLO_EDGE_SOCKET", edge.AdminSocket(dir))
	if o := tombolo(t, "edge", "status", "-o", "json"); o.code != 0 || !strings.Contains(o.out, `"kind": "EdgeStatus"`) {
		t.Errorf("%+v", o)
	}
	t.Setenv("TOMBOLO_WAIT", "0s")
	wantExit(t, tombolo(t, "edge", "status", "--admin-socket", dir+"/none"), 3, "edge_unreachable", "no 'tombolo edge' answers")
}

func TestEdgeCoverage(t *testing.T) {
	dir := runtest.Dir(t)
	config, _ := edgeFiles(t, dir)
	policy := filepath.Join(dir, "p.yaml")
	for file, text := range map[string]string{
		policy: "apiVersion: tombolo.dev/v1alpha1\nkind: AccessPolicy\nrules:\n" +
			"- {name: r, group: g, clusters: [c1], flows: [api], sources: [203.0.113.0/24], allow: ['*']}\n",
		filepath.Join(dir, "tenants", "c2.yaml"): "apiVersion: tombolo.dev/v1alpha1\nkind: EdgeTenant\nmetadata: {name: c2}\n" +
			"spec: {ways: [{flow: proxy, protocols: [x], upstreams: ['192.0.2.1:1']}]}\n",
		config: string(readTestFile(t, config)) + "policies: [" + policy + "]\n",
	} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want := "2 tenants: ways guarded by rules 1, by the tenant 0, open 1, unguarded 0\n\n" +
		"CLUSTER   FLOW    GUARD   RULES   REACHED BY\n" +
		"c2        proxy   open    -       protocol x and no known name\n" +
		"c1        api     rules   g/r     c1.example.org\n"
	files := []string{"edge", "coverage", "--tenants", dir + "/tenants", "--policies", policy, "--strict"}
	if o := tombolo(t, files...); o.code != 0 || o.out != want {
		t.Errorf("%+v", o)
	}
	p := startProcess(t, "edge", "--config", config)
	p.Says(t, "edge is ready")
	t.Setenv("TOMBOLO_EDGE_SOCKET", edge.AdminSocket(dir))
	if o := tombolo(t, "edge", "coverage"); o.code != 0 || o.out != want {
		t.Errorf("%+v", o)
	}
	wantExit(t, tombolo(t, "edge", "coverage", "c3"), 1, "not_found", `there is no tenant "c3"`)
	moved := strings.Replace(string(readTestFile(t, policy)), "flows: [api]", "flows: [vpn]", 1)
	moved = strings.Replace(moved, "[c1]", "[c1, c2]", 1)
	if err := os.WriteFile(policy, []byte(moved), 0o644); err != nil {
		t.Fatal(err)
	}
	wantExit(t, tombolo(t, files...), 4, "1 way past the rules of clusters")
	runtest.Eventually(t, "the status has the alarm", func() bool {
		return strings.Contains(tombolo(t, "edge", "status").out, "alarm: 1 way past the rules of clusters, see 'tombolo edge coverage': c2\n")
	})
}

func readTestFile(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
