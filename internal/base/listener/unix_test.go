// SPDX-License-Identifier: Apache-2.0

package listener_test

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/listener"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

func TestListenUnix(t *testing.T) {
	dir := runtest.Dir(t)
	path := filepath.Join(dir, "role", "role.sock")
	first, err := listener.ListenUnix("--run-dir", path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := listener.ListenUnix("--run-dir", path); !fault.Has(err, fault.CodeSocketBusy) {
		t.Errorf("a second one: %v", err)
	}
	// As after kill -9: the socket stands there, and the lock is free.
	first.Listener.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Fatal(err)
	}
	again, err := listener.ListenUnix("--run-dir", path)
	if err != nil {
		t.Fatalf("after a kill: %v", err)
	}
	again.Close()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := listener.ListenUnix("--run-dir", path); !fault.Has(err, fault.CodeSocketPath) {
		t.Errorf("a file stands there: %v", err)
	}
	if _, err := listener.ListenUnix("--run-dir", "/"+strings.Repeat("x", 120)+"/role.sock"); !fault.Has(err, fault.CodeSocketPath) {
		t.Errorf("a long path: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := listener.ListenUnix("--run-dir", filepath.Join(dir, "file", "role", "role.sock")); !fault.Has(err, fault.CodeSocketPath) {
		t.Errorf("no folder: %v", err)
	}
}
