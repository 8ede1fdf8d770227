// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

func TestBackupAndRestore(t *testing.T) {
	w := startWorld(t)
	file := filepath.Join(w.dir, "hub.backup")
	must(t, "hub", "backup", "--to", file)
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 || info.Size() == 0 {
		t.Errorf("%v, %v", info, err)
	}
	wantExit(t, tombolo(t, "hub", "backup", "--to", file), 2, file)
	wantExit(t, tombolo(t, "hub", "backup", "--to", filepath.Join(w.dir, "no/such/folder/x")), 2)
	state := filepath.Join(w.dir, "hub")
	wantExit(t, tombolo(t, "hub", "restore", "--from", file, "--state-dir", state), 1, "state_busy")
	wantExit(t, tombolo(t, "hub", "restore", "--from", file, "--state-dir", state, "--force"), 1, "state_busy")
	if !strings.Contains(must(t, "status"), "connected") {
		t.Error("the refused restore touched the running hub")
	}
	half := filepath.Join(w.dir, "half")
	if err := os.WriteFile(half, readFile(t, file)[:10_000], 0o600); err != nil {
		t.Fatal(err)
	}
	wantExit(t, tombolo(t, "hub", "restore", "--from", half, "--state-dir", filepath.Join(w.dir, "elsewhere")), 1, "state_corrupt")

	// The machine of the hub is lost; the backup brings back what agents trust.
	w.hub.Process.Kill()
	<-w.hub.Done()
	if err := os.RemoveAll(state); err != nil {
		t.Fatal(err)
	}
	must(t, "hub", "restore", "--from", file, "--state-dir", state)
	w.hub = w.runHub(t)
	runtest.Eventually(t, "the agent returns by itself", func() bool { return strings.Contains(must(t, "status"), "connected") })
	if _, err := os.Stat(file + ".part"); err == nil {
		t.Error("a part of a backup was left")
	}

	// Over an existing state only with --force, and the old one is kept.
	w.hub.Process.Kill()
	<-w.hub.Done()
	wantExit(t, tombolo(t, "hub", "restore", "--from", file, "--state-dir", state), 1, "state_busy", "--force")
	wantExit(t, tombolo(t, "hub", "restore", "--from", half, "--state-dir", state, "--force"), 1, "state_corrupt")
	must(t, "hub", "restore", "--from", file, "--state-dir", state, "--force")
	if old, err := filepath.Glob(filepath.Join(state, "hub.db.old*")); err != nil || len(old) != 1 {
		t.Errorf("the replaced state is not kept: %v, %v", old, err)
	}
	w.hub = w.runHub(t)
	runtest.Eventually(t, "the agent returns again", func() bool { return strings.Contains(must(t, "status"), "connected") })
}
