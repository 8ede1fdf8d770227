// SPDX-License-Identifier: Apache-2.0

//go:build lab

package state_test

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/stream/hub/state"
)

// TestAFullDiskLeavesNothingBehind: a first start on a disk without room fails,
// and succeeds on the same directory once there is room. A disk that fills later
// refuses new tokens, keeps the old ones, and takes new ones when there is room.
func TestAFullDiskLeavesNothingBehind(t *testing.T) {
	dir := filepath.Join(smallDisk(t), "state")
	ballast := filepath.Join(filepath.Dir(dir), "ballast")
	if err := os.WriteFile(ballast, make([]byte, 1012<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := state.Open(dir); !fault.Has(err, fault.CodeStateAccess) {
		t.Fatalf("first start without room: %v", err)
	}
	onlyFiles(t, dir)
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	s := open(t, dir)
	put := func() error {
		token, _ := trust.NewToken(cluster(t, "c1"), time.Hour, 1, noon())
		return s.PutToken(token, noon())
	}
	if err := put(); err != nil {
		t.Fatal(err)
	}
	// As much as fits, and no error is wanted of a disk that is to be full.
	os.WriteFile(ballast, make([]byte, 1<<20), 0o600)
	var err error
	for range 500 {
		if err = put(); err != nil {
			break
		}
	}
	if !fault.Has(err, fault.CodeStateAccess) {
		t.Fatalf("on the full disk: %v", err)
	}
	if tokens, err := s.Tokens(); err != nil || len(tokens) == 0 {
		t.Errorf("%d tokens, %v", len(tokens), err)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if err := put(); err != nil {
		t.Errorf("with room again: %v", err)
	}
}

// smallDisk mounts a megabyte for this test's thread alone; the thread, and with
// it the mount, ends with the test.
func smallDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	runtime.LockOSThread() // never unlocked
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // on the same thread
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}
