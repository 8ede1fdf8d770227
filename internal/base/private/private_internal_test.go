// SPDX-License-Identifier: Apache-2.0

package private

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// TestExposed: who may read what, by mode, owner and group; our group is 7.
func TestExposed(t *testing.T) {
	for _, c := range []struct {
		what     string
		mode     fs.FileMode
		uid, gid int
		ours     bool
		why      string
	}{
		{"made by hand", 0o600, 1000, 1000, false, ""},
		{"read-only", 0o400, 1000, 1000, false, ""},
		{"systemd: the user's own credential", 0o400, 1000, 0, false, ""},
		{"systemd: root's, with an ACL that shows as the group's bits", 0o440, 0, 0, false, ""},
		{"Kubernetes: defaultMode 0400 with an fsGroup", 0o440, 0, 7, false, ""},
		{"Kubernetes: its default mode", 0o644, 0, 7, false, "everybody"},
		{"Kubernetes: its default mode, made state", 0o644, 0, 7, true, "everybody"},
		{"root's, for a group", 0o640, 0, 9, false, ""},
		{"root's, and the group writes", 0o660, 0, 7, false, "write"},
		{"root's, and the group runs", 0o650, 0, 7, false, "write"},
		{"a user's, for a group", 0o640, 1000, 7, false, "group"},
		{"others read", 0o604, 1000, 1000, false, "everybody"},
		{"others write", 0o602, 0, 0, false, "everybody"},
		{"others run", 0o601, 0, 0, false, "everybody"},
		{"everybody", 0o666, 0, 0, false, "everybody"},
		{"state that kubelet opened to its fsGroup", 0o660, 1000, 7, true, ""},
		{"state that is open to another group", 0o640, 1000, 8, true, "group"},
		{"state that is open to all", 0o664, 1000, 7, true, "everybody"},
		{"a folder", fs.ModeDir | 0o700, 0, 0, false, "regular"},
		{"a pipe", fs.ModeNamedPipe | 0o600, 0, 0, true, "regular"},
	} {
		why, next := exposed(found{c.mode, c.uid, c.gid}, 7, c.ours)
		if (why == "") != (c.why == "") || !strings.Contains(why, c.why) || (next == "") != (why == "") {
			t.Errorf("%s: %q, %q", c.what, why, next)
		}
	}
}

// TestRead as kubelet mounts a Secret: links to a folder that is replaced as a whole.
func TestRead(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, mode fs.FileMode) string {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte("s3cret"), 0o600), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for generation, mode := range map[string]fs.FileMode{"..2026_01": 0o400, "..2026_02": 0o644} {
		write(generation+"/secret", mode)
		data := filepath.Join(dir, "..data")
		os.Remove(data)
		link := filepath.Join(dir, "secret")
		os.Remove(link)
		if err := errors.Join(os.Symlink(generation, data), os.Symlink("..data/secret", link)); err != nil {
			t.Fatal(err)
		}
		got, err := Read(link, 100)
		if mode == 0o400 {
			if err != nil || string(got) != "s3cret" {
				t.Errorf("%q, %v", got, err)
			}
			continue
		}
		if text := fault.From(err).Explain(); !fault.Has(err, fault.CodeSecret) || !strings.Contains(text, "0644") || !strings.Contains(text, "chmod 600 "+link) || !strings.Contains(text, "defaultMode") || len(got) > 0 {
			t.Errorf("%q, %s", got, text)
		}
	}
	if _, err := Read(filepath.Join(dir, "none"), 100); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
	if _, err := Read(write("long", 0o600), 5); err == nil || strings.Contains(err.Error(), "s3c") {
		t.Errorf("%v", err)
	}
	if _, err := Read(dir, 100); !fault.Has(err, fault.CodeSecret) {
		t.Errorf("a folder: %v", err)
	}
	pipe := filepath.Join(dir, "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(pipe, 100); !fault.Has(err, fault.CodeSecret) {
		t.Errorf("a pipe: %v", err)
	}
	ours := write("state", 0o660)
	if err := os.Chown(ours, -1, os.Getegid()); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadState(ours, 100); err != nil {
		t.Errorf("what kubelet opened to our group: %v", err)
	}
	if _, err := Read(ours, 100); !fault.Has(err, fault.CodeSecret) {
		t.Errorf("the same, as a secret: %v", err)
	}
	if err := CheckState(write("open", 0o604)); !fault.Has(err, fault.CodeSecret) {
		t.Errorf("state that all may read: %v", err)
	}
}

func TestPair(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "c"), filepath.Join(dir, "k")
	for path, mode := range map[string]fs.FileMode{cert: 0o644, key: 0o644} {
		if err := os.WriteFile(path, []byte("x"), mode); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Pair(cert, key); !fault.Has(err, fault.CodeSecret) {
		t.Errorf("an open key: %v", err)
	}
	if err := os.Chmod(key, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Pair(cert, key); err == nil || fault.Has(err, fault.CodeSecret) {
		t.Errorf("no PEM: %v", err)
	}
	if _, err := Pair(cert+"none", key); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no certificate: %v", err)
	}
}
