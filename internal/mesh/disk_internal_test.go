// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// takeAway has nothing written into a folder, as on a full disk, until it is called back.
func takeAway(t *testing.T, dir string) (back func()) {
	t.Helper()
	aside := dir + ".aside"
	if err := errors.Join(os.Rename(dir, aside), os.WriteFile(dir, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if err := errors.Join(os.Remove(dir), os.Rename(aside, dir)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestARotationEndsWithoutADisk: the new key is in force, the status warns, no further rotation
// begins, and once there is room the key is in its place without a restart.
func TestARotationEndsWithoutADisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "state")
		m, _ := newRoom(t, dir, nil)
		d := &device{}
		m.peering.Use(d, d)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- m.followRotation(ctx) }()
		defer func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		first := m.keys.now
		if _, err := m.RotateKey(); err != nil {
			t.Fatal(err)
		}
		next := m.keys.next
		back := takeAway(t, dir)
		if err := m.peering.End(); err != nil {
			t.Fatal(err)
		}
		m.turned(next.public)
		synctest.Wait()
		if s := m.member(); s.WireGuard != next.public || !s.PreviousKey.IsZero() {
			t.Errorf("announced are %v and %v", s.WireGuard, s.PreviousKey)
		}
		if w := m.Status().Warnings; len(w) != 1 || !strings.Contains(w[0], "not in its place on disk") {
			t.Errorf("the status warns of %q", w)
		}
		if _, err := m.RotateKey(); !fault.Has(err, fault.CodeStateAccess) {
			t.Errorf("a second rotation: %v", err)
		}
		back()
		if got, err := readKeys(dir); err != nil || got.now.public != first.public || got.next.public != next.public {
			t.Fatalf("on disk are %v and %v: %v", got.now, got.next, err)
		}
		for range 3 { // the disk is looked at again, and found full, before
			back := takeAway(t, dir)
			time.Sleep(limit.MeshKeep)
			synctest.Wait()
			back()
		}
		time.Sleep(limit.MeshKeep)
		synctest.Wait()
		if got, err := readKeys(dir); err != nil || got.now.public != next.public || !got.next.isZero() {
			t.Errorf("once there is room are on disk %v and %v: %v", got.now, got.next, err)
		}
		if w := m.Status().Warnings; len(w) != 0 {
			t.Errorf("the status warns of %q", w)
		}
	})
}

// TestASecondRotationPutsTheFirstOneInPlace before anything of it is on disk: a kill in its
// middle would announce as previous key one that nobody has.
func TestASecondRotationPutsTheFirstOneInPlace(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	k, err := readKeys(dir)
	if err != nil {
		t.Fatal(err)
	}
	second, third := drawn(t), drawn(t)
	if k, err = k.begin(dir, second); err != nil {
		t.Fatal(err)
	}
	back := takeAway(t, dir)
	if k, err = k.end(dir); !fault.Has(err, fault.CodeStateAccess) || k.now.public != second.public || !k.next.isZero() || k.owed == nil {
		t.Fatalf("%v, %v, owed %v: %v", k.now, k.next, k.owed, err)
	}
	if k, err = k.begin(dir, third); !fault.Has(err, fault.CodeStateAccess) || k.now.public != second.public || !k.next.isZero() || k.owed == nil {
		t.Fatalf("%v, %v, owed %v: %v", k.now, k.next, k.owed, err)
	}
	back()
	if k, err = k.begin(dir, third); err != nil || k.owed != nil {
		t.Fatal(k.owed, err)
	}
	if got, err := readKeys(dir); err != nil || got.now.public != second.public || got.next.public != third.public {
		t.Errorf("after a kill are on disk %v and %v: %v", got.now, got.next, err)
	}
}

func drawn(t *testing.T) key {
	t.Helper()
	k, err := drawKey()
	if err != nil {
		t.Fatal(err)
	}
	return k
}
