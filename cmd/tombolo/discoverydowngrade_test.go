// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestDowngrade takes a service out of those that have spoken the native protocol.
func TestDowngrade(t *testing.T) {
	dir := t.TempDir()
	wantExit(t, tombolo(t, "discovery", "downgrade"), 2, "SERVICE")
	wantExit(t, tombolo(t, "discovery", "downgrade", "http://one", "--state-dir", dir, "--config", "x"), 2, "--config")
	wantExit(t, tombolo(t, "discovery", "downgrade", "http://one", "--state-dir", dir), 1, "not_found", "nothing keeps it")
	writeText(t, filepath.Join(dir, "services.native"), "http://one:80\nhttps://two:8446\n")
	wantExit(t, tombolo(t, "discovery", "downgrade", "http://three", "--state-dir", dir), 1, "not_found", "http://one:80, https://two:8446")
	var v downgraded
	strictly(t, must(t, "discovery", "downgrade", "two:8446", "--state-dir", dir, "-o", "json"), &v)
	if left, err := os.ReadFile(filepath.Join(dir, "services.native")); err != nil || string(left) != "http://one:80\n" || v.Service != "https://two:8446" {
		t.Errorf("%+v: %q, %v", v, left, err)
	}
}
