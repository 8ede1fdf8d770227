// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
)

// TestAFullDiskKeepsTheAddresses: a node starts with the addresses that it has on disk, though
// it cannot write under which secrets; the status says so until it can. An address that is not
// on disk is none.
func TestAFullDiskKeepsTheAddresses(t *testing.T) {
	dir := t.TempDir()
	m, _ := newRoom(t, dir, nil)
	if _, err := m.reconsider(roster.Result{}); err != nil {
		t.Fatal(err)
	}
	was := m.overlay
	m, _ = newRoom(t, dir, nil)
	m.overlay.Clusters = nil                         // another secret has come
	m.cfg.StateDir = filepath.Join(dir, overlayFile) // which is no directory
	for range 2 {
		if changed, err := m.reconsider(roster.Result{}); err != nil || changed || !m.overlay.sameAddresses(was) {
			t.Fatalf("it has %v, changed %v, %v", m.overlay, changed, err)
		}
		if w := strings.Join(m.Status().Warnings, "\n"); !strings.Contains(w, "state_unwritable") {
			t.Errorf("the status warns of %q", w)
		}
	}
	m.overlay.Four = netip.Addr{}
	if _, err := m.reconsider(roster.Result{}); !fault.Has(err, fault.CodeStateAccess) {
		t.Errorf("an address is chosen that is not kept: %v", err)
	}
	m.cfg.StateDir = dir
	if _, err := m.reconsider(roster.Result{}); err != nil {
		t.Fatal(err)
	}
	if w := m.Status().Warnings; len(w) > 0 {
		t.Errorf("the status still warns of %q", w)
	}
	if again, _ := newRoom(t, dir, nil); !slices.Equal(again.overlay.Clusters, m.clusters()) {
		t.Errorf("the secrets are not kept: %v", again.overlay.Clusters)
	}
}

// TestAnAddressIsGivenUp: the node takes another one, keeps it, and says so in its status.
func TestAnAddressIsGivenUp(t *testing.T) {
	dir := t.TempDir()
	m, _ := newRoom(t, dir, nil)
	if _, err := m.reconsider(roster.Result{}); err != nil {
		t.Fatal(err)
	}
	four := m.overlay.Four
	has := roster.Result{Members: []roster.Member{{Facts: roster.Facts{ID: "!", Node: "b", Overlay4: four}, Tier: roster.TierNative}}}
	changed, err := m.reconsider(has)
	if err != nil || !changed || m.overlay.Four == four || !m.overlay.Four.IsValid() {
		t.Fatalf("it has %v, changed %v, %v", m.overlay.Four, changed, err)
	}
	if w := strings.Join(m.Status().Warnings, "\n"); !strings.Contains(w, "mesh_overlay") || !strings.Contains(w, four.String()) || !strings.Contains(w, "b (member !)") {
		t.Errorf("the status warns of %q", w)
	}
	if again, _ := newRoom(t, dir, nil); again.overlay.Four != m.overlay.Four {
		t.Errorf("after a restart it has %v", again.overlay.Four)
	}
}
