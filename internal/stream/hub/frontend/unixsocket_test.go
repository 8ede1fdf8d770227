// SPDX-License-Identifier: Apache-2.0

package frontend

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
)

func plain(path string) SocketSpec { return SocketSpec{Path: path, Mode: 0o600, UID: -1, GID: -1} }

func listen(t *testing.T, spec SocketSpec) net.Listener {
	t.Helper()
	ln, err := ListenUnix(spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln
}

// stale leaves a socket file that nobody serves.
func stale(t *testing.T, path string) {
	t.Helper()
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	ln.SetUnlinkOnClose(false)
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
}

// reaches says whether a connection to path arrives at ln.
func reaches(t *testing.T, path string, ln net.Listener) bool {
	t.Helper()
	conn, err := net.Dial("unix", path)
	if err != nil {
		return false
	}
	defer conn.Close()
	far, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return far.Close() == nil
}

func TestASocketIsMade(t *testing.T) {
	for name, prepare := range map[string]func(t *testing.T, dir string) string{
		"where nothing stands": func(_ *testing.T, dir string) string { return filepath.Join(dir, "s") },
		"with its directories": func(_ *testing.T, dir string) string { return filepath.Join(dir, "a", "b", "s") },
		"in place of a stale one": func(t *testing.T, dir string) string {
			stale(t, filepath.Join(dir, "s"))
			return filepath.Join(dir, "s")
		},
		"at a path of the greatest length": func(t *testing.T, dir string) string {
			if len(dir) > limit.SocketPath-3 {
				t.Skip("the directory for temporary files is too deep")
			}
			return dir + "/" + strings.Repeat("x", limit.SocketPath-2-len(dir))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, err := os.MkdirTemp("", "s") // short: sun_path bounds it
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.RemoveAll(dir) })
			path := prepare(t, dir)
			ln := listen(t, plain(path))
			if !reaches(t, path, ln) {
				t.Fatal("nobody can connect")
			}
			if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 1 {
				t.Errorf("%v, %v stand beside the socket", entries, err)
			}
			if err := ln.Close(); err != nil {
				t.Error(err)
			}
			if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("after the close: %v", err)
			}
		})
	}
}

func TestASocketIsNotMade(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	live := filepath.Join(dir, "live")
	ln := listen(t, plain(live))
	full := filepath.Join(dir, "full")
	fillQueue(t, full)
	for name, c := range map[string]struct {
		path string
		want fault.Code
	}{
		"over a file":                       {file, fault.CodeSocketPath},
		"over a link to a file":             {link, fault.CodeSocketPath},
		"over a directory":                  {dir, fault.CodeSocketPath},
		"below a file":                      {filepath.Join(file, "s"), fault.CodeSocketPath},
		"where nothing can be made":         {"/proc/self/s", fault.CodeSocketPath},
		"at a path that is too long":        {"/" + strings.Repeat("x", limit.SocketPath-1), fault.CodeSocketPath},
		"over one that is served":           {live, fault.CodeSocketBusy},
		"over one that is served, but busy": {full, fault.CodeSocketBusy},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ListenUnix(plain(c.path))
			if f := fault.From(err); f == nil || f.Code != c.want || !strings.Contains(f.Error(), c.path) {
				t.Errorf("%v, want %s", err, c.want)
			}
		})
	}
	// The attempt over the live one connected to it.
	probe, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	probe.Close()
	if !reaches(t, live, ln) {
		t.Error("the live socket was harmed")
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != "precious" {
		t.Errorf("the file was harmed: %q, %v", got, err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".t*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// A directory that this user may not write is corrected by its rights or by another one.
func TestTheHintNamesTheSetting(t *testing.T) {
	for _, err := range []error{fs.ErrPermission, fs.ErrNotExist} {
		if f := fault.From(socketFault("/run/s", err)); !strings.Contains(f.Next, "--run-dir (runDir)") {
			t.Errorf("%v: %q", err, f.Next)
		}
	}
}

// fillQueue serves a socket whose queue has no room for another connection.
func fillQueue(t *testing.T, path string) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}), syscall.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	for {
		conn, err := net.Dial("unix", path)
		if errors.Is(err, syscall.EAGAIN) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
	}
}

// TestASocketIsNeverSeenWithWrongPermissions looks at the path all the time
// while sockets come and go there.
func TestASocketIsNeverSeenWithWrongPermissions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	spec := SocketSpec{Path: path, Mode: 0o612, UID: -1, GID: -1}
	if os.Getuid() == 0 {
		spec.UID, spec.GID = 65532, 65531
	}
	stop, done := make(chan struct{}), make(chan struct{})
	seen := 0
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			info, err := os.Lstat(path)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				t.Error(err)
				return
			}
			seen++
			if got := describe(info); got != wanted(spec) {
				t.Errorf("seen with %s, want %s", got, wanted(spec))
				return
			}
		}
	}()
	for i := range 200 {
		ln, err := ListenUnix(spec)
		if err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			ln.Close()
		} else { // leaves a stale file, which the next one replaces
			ln.UnixListener.Close()
		}
	}
	last := listen(t, spec)
	info, err := os.Lstat(path)
	if err != nil || describe(info) != wanted(spec) {
		t.Errorf("%v, %v", info, err)
	}
	close(stop)
	<-done
	last.Close()
	t.Logf("seen %d times", seen)
}

func describe(info fs.FileInfo) string {
	st := info.Sys().(*syscall.Stat_t)
	uid, gid := int(st.Uid), int(st.Gid)
	if os.Getuid() != 0 {
		uid, gid = -1, -1
	}
	return fmt.Sprint(info.Mode(), uid, gid)
}

func wanted(s SocketSpec) string { return fmt.Sprint(fs.ModeSocket|s.Mode, s.UID, s.GID) }

// TestAnOpenSocketIsPermittedAsItself: what stands in its place by now keeps its mode,
// be it a link or another socket.
func TestAnOpenSocketIsPermittedAsItself(t *testing.T) {
	dir := t.TempDir()
	spec := plain(filepath.Join(dir, "s"))
	ln, err := ListenUnix(spec)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	wider := spec
	wider.Mode = 0o666
	o := &openSocket{spec: spec, self: ln.self}
	if err := o.permit(wider); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(spec.Path); err != nil || info.Mode() != fs.ModeSocket|0o666 {
		t.Errorf("the socket is %v, %v", info.Mode(), err)
	}
	victim := filepath.Join(dir, "victim")
	if err := os.WriteFile(victim, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	listen(t, plain(filepath.Join(dir, "other")))
	for what, put := range map[string]func() error{
		"a link":         func() error { return os.Symlink(victim, spec.Path) },
		"another socket": func() error { return os.Link(filepath.Join(dir, "other"), spec.Path) },
		"a file":         func() error { return os.Link(victim, spec.Path) },
	} {
		if err := errors.Join(os.Remove(spec.Path), put()); err != nil {
			t.Fatal(err)
		}
		before, _ := os.Stat(spec.Path)
		o := &openSocket{spec: spec, self: ln.self}
		if err := o.permit(wider); !fault.Has(err, fault.CodeSocketPath) {
			t.Errorf("%s: %v", what, err)
		}
		if after, _ := os.Stat(spec.Path); after.Mode() != before.Mode() {
			t.Errorf("%s is %v now", what, after.Mode())
		}
	}
}

func TestAClosedSocketLeavesItsSuccessorAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	first := listen(t, plain(path))
	first.(*Listener).UnixListener.Close() // as if its process had died
	second := listen(t, plain(path))
	first.Close()
	if !reaches(t, path, second) {
		t.Error("the close of the first removed the second")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := second.Close(); err != nil {
		t.Errorf("the close of a socket whose file is gone: %v", err)
	}
}

func TestTheDirectoryOfTheAdminSocketIsPrivate(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "run", "admin")
	for _, prepare := range []func() error{
		func() error { return nil },
		func() error { return os.Chmod(dir, 0o777) }, // as someone else might have left it
	} {
		if err := prepare(); err != nil {
			t.Fatal(err)
		}
		if err := PrivateDir(dir); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%v, %v", info, err)
		}
	}
	if info, err := os.Stat(filepath.Dir(dir)); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("the run directory: %v, %v; others must pass through it", info, err)
	}
	file := filepath.Join(top, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{file, filepath.Join(file, "x"), filepath.Join(file, "x", "y"), "/proc/self/x"} {
		if err := PrivateDir(bad); !fault.Has(err, fault.CodeSocketPath) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
