// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/store"
)

func TestLockHasOneHolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	open := func() *os.File {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	first, second := open(), open()
	if err := store.Lock(first); err != nil {
		t.Fatal(err)
	}
	if err := store.Lock(second); !errors.Is(err, syscall.EWOULDBLOCK) {
		t.Fatalf("a second one gets %v", err)
	}
	first.Close()
	if err := store.Lock(second); err != nil {
		t.Errorf("the holder is gone: %v", err)
	}
	if err := store.Lock(first); !errors.Is(err, fs.ErrClosed) && !errors.Is(err, syscall.EBADF) {
		t.Errorf("of a closed file: %v", err)
	}
}

// only checks that a folder holds one file, private and with this text.
func only(t *testing.T, path, text string) {
	t.Helper()
	list, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(list) != 1 {
		t.Fatalf("%v, %v", list, err)
	}
	data, err := os.ReadFile(path)
	info, ierr := os.Stat(path)
	if err := errors.Join(err, ierr); err != nil {
		t.Fatal(err)
	}
	if string(data) != text || info.Mode() != 0o600 {
		t.Errorf("%q, %v", data, info.Mode())
	}
}

func TestWriteReplaces(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	path := filepath.Join(dir, "file")
	for _, text := range []string{"one", "", "three"} {
		if err := store.Write(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
		only(t, path, text)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info, err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := store.Write(path, []byte("four")); err != nil {
		t.Fatal(err)
	}
	only(t, path, "four")
}

// TestWriteLeavesAllAsItWas: what stands at the path cannot be replaced.
func TestWriteLeavesAllAsItWas(t *testing.T) {
	dir := t.TempDir()
	inner := filepath.Join(dir, "name")
	if err := store.Write(filepath.Join(inner, "file"), []byte("kept")); err != nil {
		t.Fatal(err)
	}
	if err := store.Write(inner, []byte("new")); !errors.Is(err, syscall.EEXIST) && !errors.Is(err, syscall.EISDIR) && !errors.Is(err, syscall.ENOTEMPTY) {
		t.Fatalf("a folder was replaced: %v", err)
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) != 1 {
		t.Errorf("%v, %v", list, err)
	}
	only(t, filepath.Join(inner, "file"), "kept")
	if err := store.Write(filepath.Join(inner, "file", "x"), nil); !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("below a file: %v", err)
	}
}
