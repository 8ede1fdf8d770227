// SPDX-License-Identifier: Apache-2.0

package enrol

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// TestTheIdentityIsNotForAll: it holds the agent's key.
func TestTheIdentityIsNotForAll(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, identityFile)
	if err := os.WriteFile(path, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(dir); !fault.Has(err, fault.CodeStateCorrupt) {
		t.Errorf("a private one is read: %v", err)
	}
	if err := os.Chmod(path, 0o604); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(dir); !fault.Has(err, fault.CodeSecret) {
		t.Errorf("one that all may read: %v", err)
	}
}
