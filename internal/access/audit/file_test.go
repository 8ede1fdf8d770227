// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// config is one for a file in a folder of the test's own.
func config(t testing.TB) Config {
	t.Helper()
	return Config{Path: filepath.Join(t.TempDir(), "audit.jsonl"), MaxSize: auditFile, MaxAge: auditAge, Keep: 3}
}

func newFileWriter(t testing.TB, cfg Config, log *runtest.Transcript) *Writer {
	t.Helper()
	w, err := New(cfg, options(t, log))
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// callers reads all files of a path in order, and gives the callers of the records.
func callers(t testing.TB, path string) (out []string) {
	t.Helper()
	files, err := Files(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		in, err := Open(file)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range records(t, text) {
			out = append(out, r.Caller)
		}
		in.Close()
	}
	return out
}

func names(t testing.TB, path string) (out []string) {
	t.Helper()
	files, err := Files(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		out = append(out, filepath.Base(f))
	}
	return out
}

// one writes a record and waits until it is there.
func one(t testing.TB, w *Writer, path, caller string) {
	t.Helper()
	w.Write(dial(caller))
	runtest.Eventually(t, caller+" is written", func() bool {
		data, err := os.ReadFile(path)
		return err == nil && bytes.Contains(data, []byte(`"`+caller+`"`))
	})
}

func TestAFileIsPrivateAndGoesOn(t *testing.T) {
	cfg := config(t)
	if err := os.WriteFile(cfg.Path, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, caller := range []string{"a", "b"} {
		w := newFileWriter(t, cfg, &runtest.Transcript{})
		w.While(t.Context(), func() error { w.Write(dial(caller)); return nil })
	}
	if info, err := os.Stat(cfg.Path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if got := callers(t, cfg.Path); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("%v", got)
	}
}

func TestAWrongPathIsRefusedAtOnce(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, fifo, filepath.Join(dir, "none", "audit"), "/dev/full"} {
		if _, err := New(Config{Path: path}, options(t, &runtest.Transcript{})); !fault.Has(err, fault.CodeAudit) || fault.From(err).Next == "" {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestRotationBySize writes more than fits and looks at what is kept.
func TestRotationBySize(t *testing.T) {
	for name, compress := range map[string]bool{"plain": false, "packed": true} {
		t.Run(name, func(t *testing.T) {
			cfg := config(t)
			cfg.MaxSize, cfg.Compress = 1000, compress
			w := newFileWriter(t, cfg, &runtest.Transcript{})
			const n = 60
			w.While(t.Context(), func() error {
				for i := range n {
					one(t, w, cfg.Path, "n"+strconv.Itoa(i))
				}
				runtest.Eventually(t, "old files are gone and packed", func() bool {
					entries, err := os.ReadDir(filepath.Dir(cfg.Path))
					plain := 0
					for _, e := range entries {
						if !strings.HasSuffix(e.Name(), packed) {
							plain++
						}
					}
					return err == nil && len(entries) == 1+cfg.Keep && (!compress || plain == 1)
				})
				return nil
			})
			got := callers(t, cfg.Path)
			if len(got) == 0 || len(got) == n || got[len(got)-1] != "n"+strconv.Itoa(n-1) {
				t.Fatalf("%v", got)
			}
			for i, c := range got { // the newest, without a gap, in order
				if want := "n" + strconv.Itoa(n-len(got)+i); c != want {
					t.Fatalf("%s stands where %s should in %v", c, want, got)
				}
			}
			files, err := Files(cfg.Path)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range files {
				if info, err := os.Stat(f); err != nil || info.Mode().Perm() != 0o600 || info.Size() > cfg.MaxSize || info.Size() == 0 {
					t.Errorf("%s: %v, %v", f, info, err)
				}
			}
		})
	}
}

// TestRotationByAge lets time pass, with records and without.
func TestRotationByAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := config(t)
		cfg.MaxAge = time.Hour
		w := newFileWriter(t, cfg, &runtest.Transcript{})
		w.While(t.Context(), func() error {
			step := func(d time.Duration, want ...string) {
				t.Helper()
				time.Sleep(d)
				synctest.Wait()
				if got := names(t, cfg.Path); !slices.Equal(got, want) {
					t.Fatalf("there is %v, not %v", got, want)
				}
			}
			step(3*time.Hour, "audit.jsonl") // an empty file does not age
			w.Write(dial("a"))
			step(time.Hour-time.Second, "audit.jsonl")
			w.Write(dial("b"))
			step(2*time.Second, "audit.jsonl.000001", "audit.jsonl")
			step(3*time.Hour, "audit.jsonl.000001", "audit.jsonl")
			w.Write(dial("c"))
			step(30*time.Minute, "audit.jsonl.000001", "audit.jsonl")
			return nil
		})
		// The age is that of the first record, also for another process.
		w = newFileWriter(t, cfg, &runtest.Transcript{})
		w.While(t.Context(), func() error {
			time.Sleep(31 * time.Minute)
			synctest.Wait()
			return nil
		})
		if got := names(t, cfg.Path); len(got) != 3 {
			t.Errorf("%v", got)
		}
		if got := callers(t, cfg.Path); !slices.Equal(got, []string{"a", "b", "c"}) {
			t.Errorf("%v", got)
		}
	})
}

// TestAFileThatIsTakenAway is made anew, as after rm and after another program's rotation.
func TestAFileThatIsTakenAway(t *testing.T) {
	for name, take := range map[string]func(path string) error{
		"removed": os.Remove,
		"renamed": func(p string) error { return os.Rename(p, p+".old") },
		"replaced": func(p string) error {
			return errors.Join(os.WriteFile(p+".new", []byte("no record\n"), 0o600), os.Rename(p+".new", p))
		},
		"gone with its folder and back": func(p string) error {
			return errors.Join(os.RemoveAll(filepath.Dir(p)), os.Mkdir(filepath.Dir(p), 0o700))
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config(t)
			var log runtest.Transcript
			w := newFileWriter(t, cfg, &log)
			w.While(t.Context(), func() error {
				one(t, w, cfg.Path, "a")
				if err := take(cfg.Path); err != nil {
					t.Fatal(err)
				}
				one(t, w, cfg.Path, "b")
				return nil
			})
			if !strings.Contains(log.String(), "removed or renamed") {
				t.Errorf("the log does not say so: %s", log.String())
			}
		})
	}
}

// TestAFolderThatIsAway breaks writing until it is back, and loses nothing.
func TestAFolderThatIsAway(t *testing.T) {
	cfg := config(t)
	cfg.Path = filepath.Join(filepath.Dir(cfg.Path), "sub", "audit.jsonl")
	dir := filepath.Dir(cfg.Path)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	cfg.Strict = true
	w := newFileWriter(t, cfg, &runtest.Transcript{})
	w.While(t.Context(), func() error {
		one(t, w, cfg.Path, "a")
		if err := os.Rename(dir, dir+"2"); err != nil {
			t.Fatal(err)
		}
		w.Write(dial("b"))
		runtest.Eventually(t, "a dial is refused", func() bool { return fault.Has(w.Admit(), fault.CodeAudit) })
		if err := os.Rename(dir+"2", dir); err != nil {
			t.Fatal(err)
		}
		runtest.Eventually(t, "a dial is admitted", func() bool { return w.Admit() == nil })
		return nil
	})
	if got := callers(t, cfg.Path); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("%v", got)
	}
}

// TestRotatedNames are in order beyond six digits, and others' files are left alone.
func TestRotatedNames(t *testing.T) {
	cfg := config(t)
	dir := filepath.Dir(cfg.Path)
	strangers := []string{"audit.jsonl.1", "audit.jsonl.bak", "audit.jsonl.000000", "audit.jsonl.-00001", "other.000001", "audit.jsonl.000009.gz.part"}
	for _, name := range append([]string{"audit.jsonl", "audit.jsonl.999999", "audit.jsonl.000002.gz", "audit.jsonl.1000000", "audit.jsonl.000010",
		"audit.jsonl.000010.gz"}, strangers...) {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"audit.jsonl.000002.gz", "audit.jsonl.000010", "audit.jsonl.999999", "audit.jsonl.1000000", "audit.jsonl"}
	if got := names(t, cfg.Path); !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
	if next, err := nextName(cfg.Path); err != nil || filepath.Base(next) != "audit.jsonl.1000001" {
		t.Errorf("%s, %v", next, err)
	}
	cfg.Keep = 1
	if err := tidy(context.Background(), cfg); err != nil {
		t.Fatal(err)
	}
	if got := names(t, cfg.Path); !slices.Equal(got, want[3:]) {
		t.Errorf("%v", got)
	}
	for _, name := range strangers {
		if _, err := os.Stat(filepath.Join(dir, name)); errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s was removed", name)
		}
	}
	if got, err := Files(cfg.Path, cfg.Path+".1000000", cfg.Path); err != nil || len(got) != 2 {
		t.Errorf("listed twice: %v, %v", got, err)
	}
}

// TestAPackingThatIsCutShort leaves the file as it was.
func TestAPackingThatIsCutShort(t *testing.T) {
	cfg := config(t)
	name := cfg.Path + "." + number(1)
	if err := os.WriteFile(name, []byte(fullLine), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := pack(ctx, name); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if got := fmt.Sprint(names(t, cfg.Path)); got != "[audit.jsonl.000001]" {
		t.Error(got)
	}
	if left, err := filepath.Glob(cfg.Path + "*"); err != nil || len(left) != 1 {
		t.Errorf("%v, %v", left, err)
	}
	if err := pack(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	in, err := Open(name) // listed before it was packed
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if text, err := io.ReadAll(in); err != nil || string(text) != fullLine {
		t.Errorf("%q, %v", text, err)
	}
}

// TestASecondWriterIsRefused opens one file twice, before and after it was rotated.
func TestASecondWriterIsRefused(t *testing.T) {
	var log runtest.Transcript
	cfg := Config{Path: filepath.Join(t.TempDir(), "audit.jsonl"), MaxSize: auditFile, MaxAge: time.Hour, Keep: 3}
	first, err := openFile(cfg, options(t, &log).Log)
	if err != nil {
		t.Fatal(err)
	}
	second := func(when string) {
		t.Helper()
		_, err := New(cfg, options(t, &log))
		if f := fault.From(err); f == nil || f.Code != fault.CodeAudit || !strings.Contains(f.Why, "another process") || !strings.Contains(f.Next, "audit.path") {
			t.Errorf("%s: %v", when, err)
		}
	}
	second("a new file")
	if _, err := first.Write([]byte("{}\n")); err != nil {
		t.Fatal(err)
	}
	first.Rotate()
	if _, err := first.Write([]byte("{}\n")); err != nil {
		t.Fatal(err)
	}
	second("a rotated file")
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := openFile(cfg, options(t, &log).Log)
	if err != nil {
		t.Fatalf("the first has let go: %v", err)
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
}
