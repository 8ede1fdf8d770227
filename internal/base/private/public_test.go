// SPDX-License-Identifier: Apache-2.0

package private_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/base/private"
)

// TestReadPublic: neither a pipe without a writer nor a device keeps anybody waiting.
func TestReadPublic(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(at("file"), []byte("four"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("file", at("link")); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(at("pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
	for path, most := range map[string]int{at("file"): 4, at("link"): 4} {
		if data, err := private.ReadPublic(path, most); err != nil || string(data) != "four" {
			t.Errorf("%s: %q, %v", path, data, err)
		}
	}
	for path, why := range map[string]string{
		at("pipe"): "no regular file", dir: "no regular file", "/dev/zero": "no regular file", at("file"): "more than 3 bytes", at("none"): "no such file",
	} {
		if _, err := private.ReadPublic(path, 3); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v, want %q", path, err, why)
		}
	}
}
