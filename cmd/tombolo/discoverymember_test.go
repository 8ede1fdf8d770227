// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// TestMemberVerbs rotates the key of a member that runs, with the programs of all
// sides: a watcher is told of a new id, and never that the member went.
func TestMemberVerbs(t *testing.T) {
	dir, listen := runtest.Dir(t), runtest.Address(9446)
	admin := strings.TrimSuffix(listen, "9446") + "9447"
	service := startProcess(t, "discovery", "--config", writeText(t, filepath.Join(dir, "discovery.yaml"),
		"apiVersion: tombolo.dev/v1alpha1\nkind: DiscoveryConfig\nsettle: 1s\ntls: {none: true}\n"),
		"--state-dir", filepath.Join(dir, "service"), "--run-dir", filepath.Join(dir, "run"), "--listen", listen, "--admin-listen", admin)
	service.Says(t, "discovery service is ready")
	secret := filepath.Join(dir, "secret")
	must(t, "discovery", "secret", "create", secret)
	node := func(name string) string {
		return writeText(t, filepath.Join(dir, name+".yaml"), fmt.Sprintf("apiVersion: tombolo.dev/v1alpha1\nkind: MeshConfig\ncluster: {secretFiles: [%q]}\n"+
			"node: {name: %s, stateDir: %q, runDir: %q}\nannounce: {role: worker}\nhealthListen: %q\nsources: {services: [{url: 'http://%s', insecure: true, protocol: native}]}\n",
			secret, name, filepath.Join(dir, name), filepath.Join(dir, name, "run"), runtest.Address(9448), listen))
	}
	a := node("a")
	wantExit(t, tombolo(t, "discovery", "member", "rotate"), 2, "--config FILE")
	wantExit(t, tombolo(t, "discovery", "member", "rotate", "--config", a), 1, "not_found", "announce")
	wantExit(t, tombolo(t, "discovery", "member", "show", "--config", a), 1, "not_found")
	running := startProcess(t, "discovery", "announce", "--config", a)
	running.Says(t, "announcing this node")
	watch := startProcess(t, "discovery", "watch", "--config", node("b"), "-o", "json")
	reads(t, watch, `"what":"joined"`)
	var before, after, now memberOf
	strictly(t, must(t, "discovery", "member", "show", "--config", a, "-o", "json"), &before)
	strictly(t, must(t, "discovery", "member", "rotate", "--config", a, "-o", "json"), &after)
	if after.Succeeds != before.Member || after.Member == before.Member || before.Succeeds != "" {
		t.Errorf("%+v, then %+v", before, after)
	}
	running.Says(t, "continues under a new key")
	reads(t, watch, after.Member)
	running.Says(t, "the old key of this member is over")
	strictly(t, must(t, "discovery", "member", "show", "--config", a, "-o", "json"), &now)
	if now.Member != after.Member || now.Succeeds != "" {
		t.Errorf("at the end it is %+v", now)
	}
	if out := must(t, "discovery", "member", "show", "--config", a); out != after.Member+"\n" {
		t.Errorf("shown is %q", out)
	}
	for line := range strings.Lines(watch.Out.String()) {
		var e struct{ What string }
		if json.Unmarshal([]byte(line), &e) == nil && !slices.Contains([]string{"listed", "joined", "changed"}, e.What) {
			t.Errorf("the watcher is told %s", line)
		}
	}
	key, err := os.ReadFile(filepath.Join(dir, "a", "member.key"))
	if err != nil || strings.Contains(string(key), "old ") || !strings.Contains(string(key), "past ") {
		t.Errorf("the file has %d bytes: %v", len(key), err)
	}
	first, _, _ := strings.Cut(string(key), "\n")
	if said := running.Err.String() + watch.Out.String() + service.Err.String(); strings.Contains(said, first) {
		t.Error("the key is in a log")
	}
	for _, p := range []*process{running, watch, service} {
		p.Process.Signal(syscall.SIGTERM)
		if code := p.Exit(t); p != watch && code != 0 {
			t.Errorf("exit %d", code)
		}
	}
}

// reads waits until a process has printed a text.
func reads(t *testing.T, p *process, text string) {
	t.Helper()
	runtest.Eventually(t, fmt.Sprintf("it prints %q", text), func() bool { return strings.Contains(p.Out.String(), text) })
}

func writeText(t *testing.T, file, text string) string {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestCAVerb(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ca")
	var made caOf
	strictly(t, must(t, "discovery", "ca", "create", dir, "-o", "json"), &made)
	for name, mode := range map[string]os.FileMode{"ca.crt": 0o644, "ca.key": 0o600} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode() != mode {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	if len(made.Pin) != 43 {
		t.Errorf("%+v", made)
	}
	wantExit(t, tombolo(t, "discovery", "ca", "create", dir), 2, "exists already")
	wantExit(t, tombolo(t, "discovery", "ca", "create"), 2)
}
