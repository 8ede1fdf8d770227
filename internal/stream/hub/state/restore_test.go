// SPDX-License-Identifier: Apache-2.0

package state_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/stream/hub/state"
)

// TestABackupUnderWritesIsConsistent takes backups while tokens are written.
// Tokens are named in order, so a consistent copy holds the first n of them.
func TestABackupUnderWritesIsConsistent(t *testing.T) {
	s := open(t, t.TempDir())
	if _, err := s.Authority("example.org", noon()); err != nil {
		t.Fatal(err)
	}
	const total = 150
	written := make(chan int, total)
	go func() {
		defer close(written)
		for i := range total {
			token, _ := trust.NewToken(cluster(t, "c1"), time.Hour, 1, noon().Add(time.Duration(i)*time.Second))
			token.ID = fmt.Sprintf("%08d", i)
			if err := s.PutToken(token, noon()); err != nil {
				t.Errorf("write %d: %v", i, err)
				return
			}
			written <- i
		}
	}()
	for last := range written {
		if last%30 != 0 {
			continue
		}
		var copied bytes.Buffer
		if err := s.Backup(&copied); err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		if err := state.Restore(&copied, dir, false); err != nil {
			t.Fatalf("restore: %v", err)
		}
		tokens, err := open(t, dir).Tokens()
		if err != nil || len(tokens) <= last {
			t.Fatalf("%d tokens, %v; want more than %d", len(tokens), err, last)
		}
		for i, token := range tokens { // newest first
			if want := fmt.Sprintf("%08d", len(tokens)-1-i); token.ID != want {
				t.Fatalf("token %s where %s is expected: the copy has holes", token.ID, want)
			}
		}
	}
}

func backup(t *testing.T, dir string) []byte {
	t.Helper()
	s := open(t, dir)
	defer s.Close()
	var out bytes.Buffer
	if err := s.Backup(&out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func pin(t *testing.T, dir string) string {
	t.Helper()
	s := open(t, dir)
	defer s.Close()
	ca, err := s.Authority("never-made.example", noon())
	if err != nil {
		t.Fatal(err)
	}
	return trust.Pin(ca.Certificate())
}

func TestRestore(t *testing.T) {
	source := t.TempDir()
	filled(t, source)
	good, want := backup(t, source), pin(t, source)

	t.Run("into a directory that does not exist", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "new")
		if err := state.Restore(bytes.NewReader(good), dir, false); err != nil {
			t.Fatal(err)
		}
		if got := pin(t, dir); got != want {
			t.Error("the restored CA is another one")
		}
		onlyFiles(t, dir, fileName)
	})
	t.Run("is refused over an existing state, which stays", func(t *testing.T) {
		dir := t.TempDir()
		filled(t, dir)
		was := pin(t, dir)
		wantCode(t, state.Restore(bytes.NewReader(good), dir, false), fault.CodeStateBusy)
		if pin(t, dir) != was {
			t.Error("the state was replaced")
		}
		onlyFiles(t, dir, fileName)
	})
	t.Run("with force keeps the old file", func(t *testing.T) {
		dir := t.TempDir()
		filled(t, dir)
		was := pin(t, dir)
		if err := state.Restore(bytes.NewReader(good), dir, true); err != nil {
			t.Fatal(err)
		}
		if pin(t, dir) != want {
			t.Error("the state was not replaced")
		}
		onlyFiles(t, dir, fileName, fileName+".old")
		aside := t.TempDir()
		if err := os.Rename(filepath.Join(dir, fileName+".old"), filepath.Join(aside, fileName)); err != nil {
			t.Fatal(err)
		}
		if pin(t, aside) != was {
			t.Error("the old file is not the old state")
		}
	})
	t.Run("with force is refused while a hub runs", func(t *testing.T) {
		dir := t.TempDir()
		filled(t, dir)
		open(t, dir)
		wantCode(t, state.Restore(bytes.NewReader(good), dir, true), fault.CodeStateBusy)
		onlyFiles(t, dir, fileName)
	})
	t.Run("with force replaces a damaged state", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, fileName), []byte("damaged"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := state.Restore(bytes.NewReader(good), dir, true); err != nil {
			t.Fatal(err)
		}
		onlyFiles(t, dir, fileName, fileName+".old")
	})
	empty := t.TempDir()
	open(t, empty)
	for name, from := range map[string]io.Reader{
		"garbage":            strings.NewReader("this is no backup"),
		"nothing":            strings.NewReader(""),
		"half a backup":      bytes.NewReader(good[:len(good)/2]),
		"a state without CA": mustOpen(t, filepath.Join(empty, fileName)),
	} {
		t.Run("refuses "+name+" and changes nothing", func(t *testing.T) {
			dir := t.TempDir()
			filled(t, dir)
			was := pin(t, dir)
			wantCode(t, state.Restore(from, dir, true), fault.CodeStateCorrupt)
			if pin(t, dir) != was {
				t.Error("the state was replaced")
			}
			onlyFiles(t, dir, fileName)
		})
	}
	t.Run("that breaks off changes nothing", func(t *testing.T) {
		dir := t.TempDir()
		from := io.MultiReader(bytes.NewReader(good[:100]), failing{})
		wantCode(t, state.Restore(from, dir, false), fault.CodeStateAccess)
		onlyFiles(t, dir)
	})
	t.Run("into a place where nothing can be made", func(t *testing.T) {
		wantCode(t, state.Restore(bytes.NewReader(good), "/proc/self/state", false), fault.CodeStateAccess)
	})
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func mustOpen(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func onlyFiles(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("%s holds %v, want %v", dir, got, want)
	}
}

func TestForceTwiceKeepsBothOldFiles(t *testing.T) {
	from, dir := t.TempDir(), t.TempDir()
	s := open(t, from)
	if _, err := s.Authority("example.org", noon()); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	data := backup(t, from)
	for i := range 3 {
		if err := state.Restore(bytes.NewReader(data), dir, i > 0); err != nil {
			t.Fatal(err)
		}
	}
	onlyFiles(t, dir, fileName, fileName+".old", fileName+".old.1")
}
