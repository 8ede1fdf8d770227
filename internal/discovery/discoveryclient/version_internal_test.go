// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestADamagedVersionIsNone: with the largest one a member could not begin, as there
// is no version after it.
func TestADamagedVersionIsNone(t *testing.T) {
	dir := t.TempDir()
	if got := lastVersion(dir); got != 0 {
		t.Errorf("without a file: %d", got)
	}
	for text, want := range map[string]uint64{
		"": 0, "x": 0, "-1": 0, "7": 7, " 8\n": 8, "9223372036854775806": math.MaxInt64 - 1, "9223372036854775807": 0, "18446744073709551615": 0,
		strings.Repeat("9", 1<<20): 0,
	} {
		if err := os.WriteFile(filepath.Join(dir, versionFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := lastVersion(dir); got != want {
			t.Errorf("of %.30q: %d, want %d", text, got, want)
		}
	}
	if err := keepVersion(dir, 41); err != nil || lastVersion(dir) != 41 {
		t.Errorf("a version is not kept: %v", err)
	}
}
