// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/discovery/seal"
)

func memberKey(dir string) (seal.MemberKey, error) {
	i, err := readIdentity(dir)
	return i.key, err
}

func onDisk(t *testing.T, dir string) identity {
	t.Helper()
	text, err := readState(filepath.Join(dir, keyFile))
	if err != nil {
		t.Fatal(err)
	}
	i, err := parseIdentity(text)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// crashed is what a process that ends in the midst of a write panics with here.
type crashed struct{}

func untilStep(n int) (at step, steps *int) {
	steps = new(int)
	return func(string) {
		if *steps++; *steps == n {
			panic(crashed{})
		}
	}, steps
}

// TestACrashLeavesTheOldKeyOrTheNew: at each step of both changes, the file is the
// one or the other, whole, and a second try goes through.
func TestACrashLeavesTheOldKeyOrTheNew(t *testing.T) {
	w, secret := newWorld(t), newSecret(t)
	crash := func(fn func()) (yes bool) {
		defer func() {
			if p := recover(); p != nil {
				_ = p.(crashed)
				yes = true
			}
		}()
		fn()
		return false
	}
	for n := 1; ; n++ {
		dir := t.TempDir()
		cfg := w.config(setup{name: "a", secrets: []string{secret}, dir: dir})
		old, err := readIdentity(dir)
		if err != nil {
			t.Fatal(err)
		}
		at, steps := untilStep(n)
		end := crash(func() {
			if _, err := rotate(cfg, at); err != nil {
				t.Error(err)
			}
		})
		if !end {
			if *steps != 5 {
				t.Errorf("a change has %d steps", *steps)
			}
			break
		}
		litter(t, dir)
		now := onDisk(t, dir)
		switch {
		case now.key.ID() == old.key.ID() && now.old.IsZero():
			if _, err := rotate(cfg, noCrash); err != nil {
				t.Errorf("step %d: the next try: %v", n, err)
			}
		case now.old.IsZero() || now.old.ID() != old.key.ID():
			t.Errorf("step %d: neither the old key nor its successor is there", n)
		}
		// The same for what forgets the old key: the new one stays.
		both := onDisk(t, dir)
		at, _ = untilStep(n)
		if !crash(func() {
			changeIdentity(dir, at, func(i identity) (identity, error) { return i.forget(cfg.keys), nil })
		}) {
			t.Errorf("step %d of the second change is not reached", n)
		}
		litter(t, dir)
		if now := onDisk(t, dir); now.key.ID() != both.key.ID() || len(now.past) != 1 {
			t.Errorf("step %d: the new key is %v, was %v", n, now.key.ID(), both.key.ID())
		}
	}
}

// litter tears what a crash left beside the file: nothing of it was synced.
func litter(t *testing.T, dir string) {
	t.Helper()
	rest, err := filepath.Glob(filepath.Join(dir, ".*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range rest {
		if err := os.Truncate(f, 3); err != nil {
			t.Fatal(err)
		}
	}
}

// TestKeysThatAreNotTaken: what stands in the file must succeed the one that runs.
func TestKeysThatAreNotTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, secret, dir := newWorld(t), newSecret(t), t.TempDir()
		svc := newNativeFake(t)
		defer w.serve("one:80", svc.register)()
		a := w.start(setup{name: "a", secrets: []string{secret}, services: []v1alpha1.MeshService{native("one")}, dir: dir})
		defer a.stop()
		time.Sleep(settle)
		id, _ := a.ID()
		path := filepath.Join(dir, keyFile)
		good := onDisk(t, dir)
		stranger := identity{key: drawnKey(t), old: drawnKey(t)}
		for name, text := range map[string]string{
			"another's": string(stranger.encode()), "alone": drawnKey(t).Encode(), "nothing": "", "torn": string(good.encode())[:20],
			"itself": string(identity{key: good.key, old: good.key}.encode()), "a word more": string(good.encode()) + "young x\n",
			"another's word": string(good.encode()) + fmt.Sprintf("past %s AAAA AAAA\n", secretOf(t, secret).Keys().Cluster()),
		} {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * lookInterval)
			synctest.Wait()
			if now, _ := a.ID(); now != id {
				t.Errorf("%s: it goes on as %v", name, now)
			}
		}
		if _, err := Rotate(w.config(setup{name: "x", secrets: []string{secret}})); !fault.Has(err, fault.CodeNotFound) {
			t.Errorf("a key of nobody: %v", err)
		}
		if err := os.WriteFile(path, []byte("torn"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Rotate(a.cfg); !fault.Has(err, fault.CodeSecret) {
			t.Errorf("a torn key: %v", err)
		}
		if text, err := os.ReadFile(path); err != nil || string(text) != "torn" {
			t.Errorf("a torn key was written over with %q", text)
		}
	})
}

// TestIdentitiesAreReadBack as they were written, and nothing is printed.
func TestIdentitiesAreReadBack(t *testing.T) {
	k1, k2 := secretOf(t, newSecret(t)).Keys(), secretOf(t, newSecret(t)).Keys()
	i := identity{key: drawnKey(t), old: drawnKey(t)}
	i.past = i.forget([]seal.Keys{k1, k2}).past
	got, err := parseIdentity(string(i.encode()))
	if err != nil || got.key.ID() != i.key.ID() || got.old.ID() != i.old.ID() || len(got.past) != 2 || got.before() != i.old.ID().String() {
		t.Fatalf("%v, %v", got, err)
	}
	if !slices.EqualFunc(got.past, i.past, func(a, b succession) bool { return a.cluster == b.cluster && proto.Equal(a.word, b.word) }) {
		t.Error("the words are others")
	}
	if over := got.forget([]seal.Keys{k1, k2}); !over.old.IsZero() || over.before() != i.old.ID().String() || len(over.encode()) > limit.KeyFile {
		t.Errorf("forgotten: %v", over)
	}
	if text := fmt.Sprintf("%+v %v", i, i); strings.Contains(text, i.key.Encode()) || strings.Contains(text, i.old.Encode()) {
		t.Error("a key is printed")
	}
}
