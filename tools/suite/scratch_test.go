// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestMountsBelow(t *testing.T) {
	const info = "21 1 0:1 / / rw - ext4 x rw\n22 21 0:2 / /tmp/t-1/a\\040b rw - tmpfs x rw\n23 21 0:2 / /tmp/t-10 rw - tmpfs x rw\n24 21 0:2 / /tmp/t-1 rw - tmpfs x rw\n"
	if got, want := mountsBelow(info, "/tmp/t-1"), []string{"/tmp/t-1/a b", "/tmp/t-1"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestLeftoverFilesAreFound runs a test that leaves a file in the temporary
// folder: the run fails, and the file is gone.
func TestLeftoverFilesAreFound(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	run := module(t, "import (\"os\"; \"testing\")\n\nfunc TestA(t *testing.T) { os.WriteFile(os.TempDir()+\"/left\", nil, 0o600) }\n")
	out, code := runStages(t, stage{"x", "", nil, func(s *stageRun) error { return s.test(run) }})
	if code != 1 || !strings.Contains(out, "temporary files behind: left") {
		t.Errorf("exit %d, want 1 and the name of the file in\n%s", code, out)
	}
	if found, _ := filepath.Glob(os.Getenv("TMPDIR") + "/t-*"); len(found) > 0 {
		t.Errorf("the folder is still there: %q", found)
	}
}
