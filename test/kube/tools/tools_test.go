// SPDX-License-Identifier: Apache-2.0

package tools

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestModules(t *testing.T) {
	repo, err := Repo()
	if err != nil {
		t.Fatal(err)
	}
	minors := Minors(repo)
	if len(minors) < 4 {
		t.Fatalf("there are modules for %v only", minors)
	}
	seen := map[string]bool{}
	for _, minor := range minors {
		module := filepath.Join(repo, "test/kube/tools/v"+minor)
		version, err := kubernetesVersion(module)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(version, "v"+minor+".") {
			t.Errorf("the module of %s pins %s", minor, version)
		}
		sum, err := fingerprint(module, buildArgs(version))
		if err != nil {
			t.Fatal(err)
		}
		if seen[sum] {
			t.Errorf("%s has the fingerprint of another version", minor)
		}
		seen[sum] = true
	}
}

func TestUnknownVersion(t *testing.T) {
	repo, err := Repo()
	if err != nil {
		t.Fatal(err)
	}
	_, err = Ensure(t.Context(), repo, "1.2", func(string) {})
	if err == nil || !strings.Contains(err.Error(), "1.35") {
		t.Errorf("an unknown version gives %v; want an error that lists the known ones", err)
	}
}

// TestFingerprint: other sums or other flags are another build.
func TestFingerprint(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	sum := func(args ...string) string {
		s, err := fingerprint(dir, args)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	write("go.mod", "module a\n")
	write("go.sum", "x\n")
	first := sum("-a")
	if sum("-a") != first {
		t.Error("the same module and flags give another fingerprint")
	}
	if sum("-b") == first {
		t.Error("other flags give the same fingerprint")
	}
	write("go.sum", "y\n")
	if sum("-a") == first {
		t.Error("another go.sum gives the same fingerprint")
	}
}

// TestHalfBuild: a directory without the mark of completion is not taken, and a failing build leaves none.
func TestHalfBuild(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "v0")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if done(dir) {
		t.Error("an empty directory counts as a whole build")
	}
	if err := (building{t.TempDir(), dir + "x", nil, programs()}).run(t.Context(), func(string) {}); err == nil {
		t.Error("a build without a module succeeded")
	}
	for _, path := range []string{dir + "x", dir + "x.building"} {
		if _, err := os.Stat(path); err == nil {
			t.Errorf("the failed build left %s", path)
		}
	}
}

// TestLock: the second builder waits for the first, and no longer than its context.
func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := lock(t.Context(), path, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	told := false
	if _, err := lock(ctx, path, func(string) { told = true }); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a held lock gives %v", err)
	}
	if !told {
		t.Error("nothing was said about the wait")
	}
	unlock()
	again, err := lock(t.Context(), path, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	again()
}

// TestBeside: a long build says that it goes on, and nothing after its end.
func TestBeside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var beats []time.Duration
		bad := errors.New("bad")
		err := beside(buildBeat, func(took time.Duration) { beats = append(beats, took) }, func() error {
			time.Sleep(2*buildBeat + buildBeat/2)
			return bad
		})
		if err != bad || len(beats) != 2 || beats[0] != buildBeat || beats[1] != 2*buildBeat {
			t.Errorf("%v, after %v", err, beats)
		}
	})
}
