// SPDX-License-Identifier: Apache-2.0

package state

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// TestTheStateIsNotForAll: it holds the CA's key. Kubelet may open it to the group of the pod.
func TestTheStateIsNotForAll(t *testing.T) {
	dir := t.TempDir()
	for mode, code := range map[os.FileMode]fault.Code{0o600: "", 0o660: "", 0o604: fault.CodeSecret} {
		s, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, fileName)
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if s, err = Open(dir); code == "" && err != nil || code != "" && !fault.Has(err, code) {
			t.Errorf("mode %v: %v", mode, err)
		}
		if err == nil {
			s.Close()
		}
		if err := os.Chmod(path, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
