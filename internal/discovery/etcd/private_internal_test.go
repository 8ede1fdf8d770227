// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// TestCredentialsAreNotForAll: neither the password nor the key.
func TestCredentialsAreNotForAll(t *testing.T) {
	file := filepath.Join(t.TempDir(), "credential")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := Config{Username: "u", PasswordFile: file, CertFile: file, KeyFile: file}
	if text, err := c.password(); err != nil || text != "x" {
		t.Errorf("%q, %v", text, err)
	}
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := c.password(); !fault.Has(err, fault.CodeSecret) {
		t.Errorf("the password: %v", err)
	}
	if _, err := c.tls(); !fault.Has(err, fault.CodeSecret) {
		t.Errorf("the key: %v", err)
	}
}
