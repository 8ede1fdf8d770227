// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// TestKeysAreNotForAll: neither a key that is given nor our own CA's.
func TestKeysAreNotForAll(t *testing.T) {
	dir := t.TempDir()
	if _, err := openCA(dir, time.Now()); err != nil {
		t.Fatal(err)
	}
	key := filepath.Join(dir, caKeyFile)
	if _, err := readPair(filepath.Join(dir, caFile), key); err != nil && fault.Has(err, fault.CodeSecret) {
		t.Errorf("as it was made: %v", err)
	}
	if err := os.Chmod(key, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := readPair(filepath.Join(dir, caFile), key); !fault.Has(err, fault.CodeSecret) {
		t.Errorf("tls.keyFile: %v", err)
	}
	if _, err := openCA(dir, time.Now()); !fault.Has(err, fault.CodeSecret) {
		t.Errorf("the CA's: %v", err)
	}
}
