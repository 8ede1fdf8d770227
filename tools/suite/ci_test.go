// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestLastLineOfContinuousIntegration: what .ci/run prints ends with the closing line of
// the suite, where something failed too. A suite that only says so stands for the real one.
func TestLastLineOfContinuousIntegration(t *testing.T) {
	root, err := findRoot()
	if err != nil {
		t.Fatal(err)
	}
	script, err := os.ReadFile(filepath.Join(root, ".ci", "run"))
	if err != nil {
		t.Fatal(err)
	}
	const last = "1 passed, 1 failed, 0 skipped"
	dir := tree(t, map[string]string{
		".ci/run":  string(script),
		"standin":  "#!/bin/sh\necho \"suite $*\"\necho '" + last + "'\nexit 1\n",
		"Makefile": "suite:\n\t@mkdir -p bin; cp standin bin/suite; chmod 755 bin/suite\ntest: suite\n\t@exec bin/suite all\n",
	})
	out, err := exec.CommandContext(t.Context(), "bash", filepath.Join(dir, ".ci", "run")).CombinedOutput()
	if err == nil || !strings.HasSuffix(string(out), "suite all\n"+last+"\n") {
		t.Errorf("%v, want a failure and the closing line after all else:\n%s", err, out)
	}
}

// TestKubernetesOfEveryDay: .ci/run and make test are with one version.
func TestKubernetesOfEveryDay(t *testing.T) {
	root, err := findRoot()
	if err != nil {
		t.Fatal(err)
	}
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	if want := "\nKUBE ?= " + kubeEveryDay + "\n"; !strings.Contains(string(makefile), want) {
		t.Errorf("the Makefile has no line %q", strings.TrimSpace(want))
	}
}
