// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/discovery/roster"
)

// TestAFullDiskKeepsTheAddresses: a node starts with the addresses that it has on disk, though
// it cannot write under which secrets; the status says so until it can. An address that is not
// on disk is none.
func TestAFullDiskKeepsTheAddresses(t *testing.T) {
	dir := t.TempDir()
	m, k := newRoom(t, dir, nil)
	turn(m, seen(m, k, roster.Result{}), time.Now())
	was := m.state.Load().overlay
	m, k = newRoom(t, dir, nil)
	become(m, func(s *state) { s.overlay.Clusters = nil }) // another secret has come
	m.cfg.StateDir = filepath.Join(dir, overlayFile)       // which is no directory
	for range 2 {
		if turn(m, seen(m, k, roster.Result{}), time.Now()); !m.state.Load().overlay.sameAddresses(was) {
			t.Fatalf("it has %v", m.state.Load().overlay)
		}
		if w := strings.Join(m.Status().Warnings, "\n"); !strings.Contains(w, "state_unwritable") {
			t.Errorf("the status warns of %q", w)
		}
	}
	become(m, func(s *state) { s.overlay.Four = netip.Addr{} })
	if turn(m, seen(m, k, roster.Result{}), time.Now()); m.state.Load().overlay.Four.IsValid() {
		t.Error("an address is used that is not kept")
	}
	m.cfg.StateDir = dir
	turn(m, seen(m, k, roster.Result{}), time.Now())
	if w := m.Status().Warnings; len(w) > 0 {
		t.Errorf("the status still warns of %q", w)
	}
	if again, _ := newRoom(t, dir, nil); !slices.Equal(again.state.Load().overlay.Clusters, m.state.Load().clusters()) {
		t.Errorf("the secrets are not kept: %v", again.state.Load().overlay.Clusters)
	}
}

// TestAnAddressIsGivenUp: the node takes another one, keeps it, announces it, and says so in its status.
func TestAnAddressIsGivenUp(t *testing.T) {
	dir := t.TempDir()
	m, k := newRoom(t, dir, nil)
	turn(m, seen(m, k, roster.Result{}), time.Now())
	four := m.state.Load().overlay.Four
	has := roster.Result{Members: []roster.Member{hasFour(roster.TierNative, "!", four)}}
	turn(m, seen(m, k, has), time.Now())
	next := m.state.Load().overlay.Four
	if next == four || !next.IsValid() || k.last(t).Overlay4 != next {
		t.Fatalf("it has %v, and announces %v", next, k.last(t).Overlay4)
	}
	if w := strings.Join(m.Status().Warnings, "\n"); !strings.Contains(w, "mesh_overlay") || !strings.Contains(w, four.String()) || !strings.Contains(w, "x (member !)") {
		t.Errorf("the status warns of %q", w)
	}
	if again, _ := newRoom(t, dir, nil); again.state.Load().overlay.Four != next {
		t.Errorf("after a restart it has %v", again.state.Load().overlay.Four)
	}
}
