// SPDX-License-Identifier: Apache-2.0

package runtest_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

func TestPlantAndWrote(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(runtest.PlantedFolder, dir)
	if runtest.Plant("a word", "secret") == nil {
		t.Error("a short secret would be found by chance")
	}
	if err := runtest.Plant("a key", "-----BEGIN X-----\nMIGHAgEAMBMGByqGSM49\n-----END X-----\n"); err != nil {
		t.Fatal(err)
	}
	if err := runtest.Wrote("a log", "line 1\nline 2\n"); err != nil {
		t.Fatal(err)
	}
	for pattern, want := range map[string]string{"secret-*": "MIGHAgEAMBMGByqGSM49", "written-*": "line 1\nline 2\n"} {
		files, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil || len(files) != 1 {
			t.Fatalf("%s: %v, %v", pattern, files, err)
		}
		data, err := os.ReadFile(files[0])
		head, text, _ := strings.Cut(string(data), "\n")
		if err != nil || text != want || !strings.HasPrefix(head, `{"of":"`) {
			t.Errorf("%s: %q, %v", pattern, data, err)
		}
	}
	t.Setenv(runtest.PlantedFolder, "")
	if runtest.Plant("a word", "secret") != nil || runtest.Wrote("a log", "x") != nil {
		t.Error("without the suite nothing is told")
	}
}
