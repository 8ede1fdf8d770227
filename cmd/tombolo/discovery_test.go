// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

func TestDiscovery(t *testing.T) {
	dir, listen := runtest.Dir(t), runtest.Address(8446)
	file := filepath.Join(dir, "discovery.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file+".new", []byte("apiVersion: tombolo.dev/v1alpha1\nkind: DiscoveryConfig\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	write("limits: {members: 7}\nsettle: 100s\n")
	p := startProcess(t, "discovery", "--config", file, "--state-dir", filepath.Join(dir, "state"), "--run-dir", filepath.Join(dir, "run"),
		"--listen", listen, "--admin-listen", strings.TrimSuffix(listen, "8446")+"8447")
	p.Says(t, "discovery service is ready")
	t.Setenv("TOMBOLO_DISCOVERY_SOCKET", filepath.Join(dir, "run/discovery/discovery.sock"))
	status := func() (st admin.DiscoveryStatus) {
		t.Helper()
		if err := json.Unmarshal([]byte(must(t, "discovery", "status", "-o", "json")), &st); err != nil {
			t.Fatal(err)
		}
		return st
	}
	text := must(t, "discovery", "status")
	for _, want := range []string{"on " + listen, "0 members in 0 clusters", "CA pin " + status().CAPin, "store: memory", "awaits members"} {
		if !strings.Contains(text, want) {
			t.Errorf("the status lacks %q:\n%s", want, text)
		}
	}
	wantExit(t, tombolo(t, "discovery", "status", "--cluster", "none"), 1, "not_found")

	write("limits: {members: 8}\nsettle: 100s\n")
	runtest.Eventually(t, "the change is noticed without a signal", func() bool { return status().Limits.Members == 8 })
	write("limits: {members: 0}\ncolour: red\n")
	p.Says(t, "the last good one stays")
	if got := status().Limits.Members; got != 8 {
		t.Errorf("after a bad file the bound is %d", got)
	}
	for _, say := range []string{"config_invalid", file + ":3:19: limits.members", file + ":4:1: colour"} {
		p.Says(t, say)
	}
	p.Process.Signal(syscall.SIGTERM)
	if code := p.Exit(t); code != 0 {
		t.Errorf("exit %d\n%s", code, p.Err.String())
	}
	if out := p.Out.String(); out != "" {
		t.Errorf("logs belong on stderr, not %q", out)
	}
	wantExit(t, tombolo(t, "discovery", "status"), 3, "discovery_unreachable")
	if _, err := os.Stat(filepath.Join(dir, "state/members")); err != nil {
		t.Errorf("no snapshot was written at the end: %v", err)
	}
}

func TestDiscoveryRefusesABadFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.yaml")
	if err := os.WriteFile(file, []byte("apiVersion: tombolo.dev/v1alpha1\nkind: DiscoveryConfig\ntls: {none: true, self: true}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	wantExit(t, tombolo(t, "discovery", "--config", file), 2, file+":3:6: tls: one of")
	wantExit(t, tombolo(t, "config", "validate", file), 2, file+":3:6: tls: one of")
	wantExit(t, tombolo(t, "discovery", "--config", file+".none"), 2, "cannot be read")
}
