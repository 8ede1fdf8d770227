// SPDX-License-Identifier: Apache-2.0

package runtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Program builds the program of this checkout into a folder of the test, as make build does: what that has
// compiled is in the cache. Linking takes seconds: a package does it once, and hands the path on.
func Program(t testing.TB) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tombolo")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-o", file,
		"github.com/tombolo-io/tombolo/cmd/tombolo")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("the program does not build: %v\n%s", err, out)
	}
	return file
}
