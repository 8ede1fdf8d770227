// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

const wireGuardHub = `apiVersion: tombolo.dev/v1alpha1
kind: HubConfig
clusters: [{name: c1}, {name: c2}]
wireguard:
  range: 192.168.128.0/22
  vpnServer: "vpn.{cluster}.svc:1194"
  endpoints:
  - {name: e1, address: "wg1.example.com:51820", publicKey: "AQIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="}
`

// startWireGuard starts a hub with two clusters, and gives a folder for files.
func startWireGuard(t *testing.T) (w *world, dir string) {
	t.Helper()
	dir = runtest.Dir(t)
	config := filepath.Join(dir, "hub.yaml")
	if err := os.WriteFile(config, []byte(wireGuardHub), 0o600); err != nil {
		t.Fatal(err)
	}
	return startHub(t, "--config", config), dir
}

// privateFile reads a file of mode 0600.
func privateFile(t *testing.T, path ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join(path...)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	return string(data)
}

func TestClusterWireGuard(t *testing.T) {
	_, dir := startWireGuard(t)
	if out := must(t, "cluster", "wireguard", "c1"); out != "cluster c1: off (mode inherit)\n" {
		t.Errorf("%q", out)
	}
	side := filepath.Join(dir, "c1")
	wantExit(t, tombolo(t, "cluster", "wireguard", "c1", "--directory", side), 1, "wireguard_off", "--on")
	out := must(t, "cluster", "wireguard", "c1", "--on", "--directory", side, "--at", "/etc/wg")
	if !strings.HasPrefix(out, "cluster c1: on (mode on), address 192.168.128.16, key ") {
		t.Errorf("%q", out)
	}
	if mesh := privateFile(t, side, "mesh.yaml"); !strings.Contains(mesh, "- /etc/wg/cluster.secret\n") || !strings.Contains(mesh, "overlay4: 192.168.128.0/22\n") {
		t.Errorf("%q", mesh)
	}
	secret, key := privateFile(t, side, "cluster.secret"), privateFile(t, side, "state", "wireguard.key")
	if members := privateFile(t, side, "members.yaml"); !strings.Contains(members, "endpointNames:\n      - wg1.example.com:51820\n") {
		t.Errorf("%q", members)
	}
	var k admin.WireGuardCluster
	text := must(t, "cluster", "wireguard", "c1", "-o", "json")
	strictly(t, text, &k)
	if !k.On || k.OwnKey || strings.Contains(text, strings.TrimSpace(secret)) || strings.Contains(text, strings.TrimSpace(key)) {
		t.Errorf("%s", text)
	}
	own := filepath.Join(dir, "c2")
	out = must(t, "cluster", "wireguard", "c2", "--on", "--key", "AwIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=", "--directory", own)
	if !strings.HasSuffix(out, "of its own\n") || !strings.Contains(privateFile(t, own, "mesh.yaml"), "stateDir: "+own+"/state\n") {
		t.Errorf("%q", out)
	}
	if _, err := os.Stat(filepath.Join(own, "state", "wireguard.key")); err == nil {
		t.Error("a private key that the hub cannot have")
	}
	if out := must(t, "cluster", "list"); !strings.Contains(out, "WIREGUARD") || !strings.Contains(out, "192.168.128.17") {
		t.Errorf("%q", out)
	}
	if out := must(t, "status"); !strings.Contains(out, "wireguard 192.168.128.0/22: 2 clusters on, 1005 addresses free, endpoints e1\n") {
		t.Errorf("%q", out)
	}
	for _, args := range [][]string{
		{"c1", "--on", "--off"}, {}, {"c1", "--watch"}, {"c1", "--at", "/x"}, {"c1", "--key", "x"}, {"--endpoint", "e1"},
		{"c1", "--endpoint", "e1", "--directory", dir}, {"--endpoint", "e1", "--directory", dir, "--on"},
	} {
		wantExit(t, tombolo(t, append([]string{"cluster", "wireguard"}, args...)...), 2, "usage")
	}
	wantExit(t, tombolo(t, "cluster", "wireguard", "--endpoint", "e9", "--directory", dir), 1, "not_found", "e1")
}

func TestClusterWireGuardOfAnEndpoint(t *testing.T) {
	w, dir := startWireGuard(t)
	side := filepath.Join(dir, "e1")
	must(t, "cluster", "wireguard", "c1", "--on")
	must(t, "cluster", "wireguard", "--endpoint", "e1", "--directory", side)
	if members := privateFile(t, side, "members.yaml"); !strings.Contains(members, "secretFile: secrets/c1\n") || strings.Contains(members, "c2") {
		t.Errorf("%q", members)
	}
	privateFile(t, side, "secrets/c1")
	if forward := privateFile(t, side, "forward.yaml"); !strings.Contains(forward, "listen: 192.168.128.1:1194\n") || !strings.Contains(forward, "target: vpn.c1.svc:1194\n") {
		t.Errorf("%q", forward)
	}
	foreign := filepath.Join(side, "secrets", "NOT-OURS")
	if err := os.WriteFile(foreign, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p := startProcess(t, "cluster", "wireguard", "--endpoint", "e1", "--directory", side, "--watch")
	must(t, "cluster", "wireguard", "c2", "--on")
	p.Says(t, "2 clusters, 3 files written, 0 files removed")
	must(t, "cluster", "wireguard", "c1", "--off")
	p.Says(t, "1 cluster, 2 files written, 1 file removed")
	if _, err := os.Stat(filepath.Join(side, "secrets/c1")); err == nil {
		t.Error("the secret of a cluster that is off is still there")
	}
	if _, err := os.Stat(foreign); err != nil {
		t.Error(err)
	}
	w.hub.End(t, syscall.SIGTERM)
	p.Says(t, "the files stay as they are: hub_unreachable")
	privateFile(t, side, "secrets/c2")
	w.hub = w.runHub(t, "--config", filepath.Join(dir, "hub.yaml"))
	must(t, "cluster", "wireguard", "c2", "--off")
	p.Says(t, "0 clusters, 2 files written, 1 file removed")
	p.End(t, syscall.SIGTERM)
}

// TestAnEndpointReadsItsSide: with a certificate of its name it does, and nothing else.
func TestAnEndpointReadsItsSide(t *testing.T) {
	w, dir := startWireGuard(t)
	must(t, "cluster", "wireguard", "c1", "--on")
	side, e1, e2 := filepath.Join(dir, "side"), filepath.Join(dir, "e1.pem"), filepath.Join(dir, "e2.pem")
	must(t, "certificate", "issue", "--role", "endpoint", "--name", "e1", "--out", e1)
	must(t, "certificate", "issue", "--role", "endpoint", "--name", "e2.seed", "--out", e2)
	as := func(file string, args ...string) outcomeOf {
		return tombolo(t, append(args, "--hub", w.listen, "--operator", file)...)
	}
	reads := []string{"cluster", "wireguard", "--endpoint", "e1", "--directory", side}
	wantExit(t, as(e2, reads...), 4, "not_authorized", "endpoint/e2.seed may not read what endpoint e1 needs")
	if o := as(e1, reads...); o.code != 0 {
		t.Errorf("%d, %s", o.code, o.err)
	}
	privateFile(t, side, "secrets/c1")
	for _, args := range [][]string{
		{"status"}, {"cluster", "list"}, {"cluster", "wireguard", "c1"}, {"cluster", "wireguard", "c1", "--off"},
		{"cluster", "export", "c1"}, {"cluster", "remove", "c1"}, {"certificate", "list"}, {"token", "create", "--cluster", "c1"},
		{"cluster", "wireguard", "c1", "--directory", filepath.Join(dir, "c1")}, {"revoke", "endpoint", "e1"},
		{"certificate", "issue", "--role", "operator", "--name", "x", "--out", filepath.Join(dir, "x.pem")},
	} {
		wantExit(t, as(e1, args...), 1, "not_found", "there is no ")
	}
	must(t, "revoke", "endpoint", "e1")
	wantExit(t, as(e1, reads...), 4, "revoked")
}

func TestClusterExportAndImport(t *testing.T) {
	_, dir := startWireGuard(t)
	must(t, "cluster", "wireguard", "c1", "--on")
	text := must(t, "cluster", "export", "c1")
	file := filepath.Join(dir, "c1.yaml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	wantExit(t, tombolo(t, "cluster", "import", file), 2, "secret_invalid")
	if err := os.Chmod(file, 0o600); err != nil {
		t.Fatal(err)
	}
	if out := must(t, "cluster", "import", file); !strings.HasPrefix(out, "cluster c1: on (mode on), address 192.168.128.16") {
		t.Errorf("%q", out)
	}
	must(t, "cluster", "wireguard", "c1", "--off")
	wantExit(t, tombolo(t, "cluster", "import", file), 1, "wireguard_taken", "differs in: mode")
	must(t, "cluster", "remove", "c1")
	startHub(t, "--config", filepath.Join(dir, "hub.yaml")) // another one, with a state of its own
	if out := must(t, "cluster", "import", file); !strings.HasPrefix(out, "cluster c1: on (mode on), address 192.168.128.16") {
		t.Errorf("%q", out)
	}
	if err := os.WriteFile(file, []byte(strings.Replace(text, "mode: on", "mode: onn", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	wantExit(t, tombolo(t, "cluster", "import", file), 2, "config_invalid", "c1.yaml:5:", "wireguard.mode")
	wantExit(t, tombolo(t, "cluster", "export", "c2"), 1, "not_found")
}
