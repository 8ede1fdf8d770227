// SPDX-License-Identifier: Apache-2.0

//go:build lab

package mesh

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestMeshFullDisk: a node starts on a disk that something else has filled, packets pass, and
// its status warns until there is room.
func TestMeshFullDisk(t *testing.T) {
	t.Parallel()
	r := ofPlaces(t, "open", "open")
	a, b := r.node(r.grid.All[0], settings{}), r.node(r.grid.All[1], settings{})
	together(a, b)
	known(a, b)
	awaitDirect(a, b)
	b.stop()
	state := filepath.Join(b.dir, "state")
	b.within = inMounts(fmt.Sprintf("cp -a %[1]s %[1]s.full && mount -t tmpfs -o size=256k,mode=700 none %[1]s && cp -a %[1]s.full/. %[1]s && { cat /dev/zero >%[1]s/log 2>/dev/null; true; }", state))
	b.begin()
	b.awaitUp()
	f := a.flood(b.overlay4)
	r.awaitAfter(f, time.Now())
	warned := func() (bool, error) {
		s, err := b.status()
		return slices.ContainsFunc(s.Warnings, func(w string) bool {
			return strings.Contains(w, "state_unwritable") && strings.Contains(w, "no space left")
		}), err
	}
	a.change(func(whole map[string]any) { whole["announce"] = map[string]any{"ranges": []string{"10.77.0.0/24"}} }) // which b cannot keep
	r.eventually("the status of "+b.name+" warns of the disk", b.role, func() error {
		if is, err := warned(); err != nil || !is {
			return errors.Join(errNotYet, err)
		}
		return nil
	})
	if err := os.Remove(fmt.Sprintf("/proc/%d/root%s/log", b.process.Pid(), state)); err != nil {
		t.Fatal(err)
	}
	r.eventually("the status of "+b.name+" warns no more", b.role, func() error {
		if is, err := warned(); err != nil || is {
			return errors.Join(errNotYet, err)
		}
		return nil
	})
}
