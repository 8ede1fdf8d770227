// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// TestKilledWithinALine begins after the torn line of a process that died.
func TestKilledWithinALine(t *testing.T) {
	if path := os.Getenv("AUDIT_TEST_KILLED"); path != "" {
		writeForever(t, path)
	}
	cfg := config(t)
	child := exec.Command(os.Args[0], "-test.run=^TestKilledWithinALine$")
	child.Env = append(os.Environ(), "AUDIT_TEST_KILLED="+cfg.Path)
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { child.Process.Kill() })
	runtest.Eventually(t, "the process writes", func() bool {
		info, err := os.Stat(cfg.Path)
		return err == nil && info.Size() > 1<<20
	})
	child.Process.Kill()
	child.Wait()
	// A kill between two writes leaves whole lines; one within a write tears the last.
	f, err := os.OpenFile(cfg.Path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(fullLine[:100]); err != nil {
		t.Fatal(err)
	}
	f.Close()
	before, bad := count(t, cfg.Path)
	if before < 100 || len(bad) != 1 || !bad[0].Torn {
		t.Fatalf("%d records, %v", before, bad)
	}
	w := newFileWriter(t, cfg, &runtest.Transcript{})
	w.While(t.Context(), func() error { w.Write(dial("next")); return nil })
	after, bad := count(t, cfg.Path)
	if after != before+1 || len(bad) != 1 || bad[0].Torn || bad[0].Line != before+1 || bad[0].File != cfg.Path {
		t.Errorf("%d records after %d, %+v", after, before, bad)
	}
}

// writeForever is the process that is killed.
func writeForever(t *testing.T, path string) {
	w := newFileWriter(t, Config{Path: path, MaxSize: auditFile, MaxAge: auditAge, Keep: 1}, &runtest.Transcript{})
	w.While(t.Context(), func() error {
		r := full()
		r.Time = time.Now() // a file of old records would be rotated by who goes on with it
		for {
			w.Write(r)
		}
	})
}

// count reads one file, with its broken lines.
func count(t *testing.T, path string) (n int, bad []*Broken) {
	t.Helper()
	in, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	r := NewReader(path, in)
	for {
		_, err := r.Next()
		var b *Broken
		switch {
		case err == io.EOF:
			return n, bad
		case errors.As(err, &b):
			bad = append(bad, b)
		case err != nil:
			t.Fatal(err)
		default:
			n++
		}
	}
}

// small is a file system that fills up: a tmpfs of the kernel's, or the same in memory.
type small struct {
	path string
	open opener
	fill func(bool)
}

func smallTmpfs(t *testing.T) small {
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("no tmpfs can be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	ballast := filepath.Join(dir, "ballast")
	return small{filepath.Join(dir, "audit.jsonl"), osOpen, func(full bool) {
		if !full {
			os.Remove(ballast)
			return
		}
		f, err := os.Create(ballast)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for err == nil {
			_, err = f.Write(make([]byte, 4096))
		}
	}}
}

func smallFake(t *testing.T) small {
	s := small{path: filepath.Join(t.TempDir(), "audit.jsonl")}
	room := 1 << 20
	s.open = func(path string) (target, error) {
		f, err := osOpen(path)
		if err != nil {
			return nil, err
		}
		return &fullable{f, &room}, nil
	}
	s.fill = func(full bool) {
		if room = 1 << 20; full {
			room = 100
		}
	}
	return s
}

// fullable is a file that takes as many bytes as there is room for, like write(2).
type fullable struct {
	target
	room *int
}

func (f *fullable) Write(b []byte) (int, error) {
	n, err := f.target.Write(b[:min(len(b), *f.room)])
	if *f.room -= n; err == nil && n < len(b) {
		err = syscall.ENOSPC
	}
	return n, err
}

// TestAFullDisk is the contract of both: a write that does not fit leaves no half
// line, and the file goes on when there is room.
func TestAFullDisk(t *testing.T) {
	for name, make := range map[string]func(*testing.T) small{"tmpfs": smallTmpfs, "fake": smallFake} {
		t.Run(name, func(t *testing.T) {
			s := make(t)
			var log runtest.Transcript
			f := &file{cfg: Config{Path: s.path, MaxSize: 1 << 20, MaxAge: time.Hour, Keep: 1}, log: options(t, &log).Log, open: s.open, rotated: nil}
			if err := f.begin(); err != nil {
				t.Fatal(err)
			}
			line := Append(nil, full())
			lines := 1
			if _, err := f.Write(line); err != nil {
				t.Fatal(err)
			}
			s.fill(true)
			for { // what is left of a page may take some
				n, err := f.Write(line)
				if err == nil {
					lines++
					continue
				}
				if !errors.Is(err, syscall.ENOSPC) || n != 0 {
					t.Fatalf("%d, %v", n, err)
				}
				break
			}
			if n, bad := count(t, s.path); n != lines || len(bad) > 0 {
				t.Errorf("on the full disk: %d records of %d, %v", n, lines, bad)
			}
			s.fill(false)
			if n, err := f.Write(line); err != nil || n != len(line) {
				t.Errorf("with room again: %d, %v", n, err)
			}
			if err := f.Close(); err != nil {
				t.Error(err)
			}
			if n, bad := count(t, s.path); n != lines+1 || len(bad) > 0 {
				t.Errorf("at the end: %d records of %d, %v", n, lines+1, bad)
			}
		})
	}
}
