// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
	"github.com/tombolo-io/tombolo/internal/mesh/topology"
)

// TestWhoGivesUpAnAddress: the table of dispute.go, and what a hostile member may try.
func TestWhoGivesUpAnAddress(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	lease := 30 * time.Minute
	four := netip.MustParseAddr("100.112.0.9")
	in := time.Minute
	for name, c := range map[string]struct {
		age      time.Duration // of our choice
		absent   []string      // from which services
		other    string        // id of the other one; ours is m5
		services []string
		standing time.Duration // for how long the claim stands
		yields   bool
	}{
		"both have just chosen, and it is smaller": {in, nil, "m1", []string{"s"}, 0, true},
		"both have just chosen, and it is greater": {in, nil, "m9", []string{"s"}, 0, false},
		"a thief, with a smaller id":               {24 * time.Hour, nil, "m1", []string{"s"}, 0, false},
		"a thief that stays":                       {24 * time.Hour, nil, "m1", []string{"s"}, time.Hour, false},
		"a thief at a service that we attended":    {24 * time.Hour, []string{"away"}, "m1", []string{"s"}, time.Hour, false},
		"what others say of it":                    {24 * time.Hour, []string{"s"}, "m1", nil, time.Hour, false},
		"both were away, and it is smaller":        {24 * time.Hour, []string{"s2"}, "m1", []string{"s1", "s2"}, 0, true},
		"both were away, and it is greater":        {24 * time.Hour, []string{"s2"}, "m9", []string{"s1", "s2"}, 0, false},
		"and it stays":                             {24 * time.Hour, []string{"s2"}, "m9", []string{"s1", "s2"}, time.Hour, false},
		"only we were away, and it is smaller":     {24 * time.Hour, []string{"s"}, "m1", []string{"s"}, 0, true},
		"only we were away, and it is greater":     {24 * time.Hour, []string{"s"}, "m9", []string{"s"}, 0, false},
		"and it keeps the address":                 {24 * time.Hour, []string{"s"}, "m9", []string{"s"}, limit.MeshDispute, true},
	} {
		o := overlay{Node: "n", Four: four, Since: now.Add(-c.age), witness: witness{Absent: map[string]time.Time{}}}
		for _, s := range c.absent {
			o.Absent[s] = now.Add(time.Minute)
		}
		one := claim{id: c.other, node: "x", addr: four, services: c.services}
		o.disputes = map[string]time.Time{one.id + " " + four.String(): now.Add(-c.standing)}
		if got := o.yields(one, choice{id: "m5", young: lease}, now); got != c.yields {
			t.Errorf("%s: it yields %v", name, got)
		}
	}
}

// TestAnAbsence: what counts as one is that from a service, for a lease or more, and it
// counts for a lease from its end on.
func TestAnAbsence(t *testing.T) {
	begin := time.Unix(1_800_000_000, 0)
	lease := 30 * time.Minute
	o := overlay{Node: "n", Since: begin}
	type look struct {
		at       time.Duration
		services []string
		absent   []string
	}
	for i, l := range []look{
		{0, []string{"s", "t"}, nil},
		{10 * time.Second, []string{"s"}, nil},
		{29 * time.Minute, []string{"s"}, nil},
		{30*time.Minute - time.Second, []string{"s", "t"}, nil}, // still listed there
		{31 * time.Minute, []string{"s"}, nil},
		{45 * time.Minute, []string{"s"}, nil},
		{62 * time.Minute, []string{"s", "t"}, []string{"t"}},
		{70 * time.Minute, []string{"s", "t"}, []string{"t"}},
		{91 * time.Minute, []string{"s", "t"}, []string{"t"}},
		{92*time.Minute + time.Second, []string{"s", "t"}, nil},
		{93 * time.Minute, []string{"s", "t", "u"}, []string{"u"}}, // it has been without this one
	} {
		o = o.attend(l.services, begin.Add(l.at), lease)
		var got []string
		for s := range o.Absent {
			got = append(got, s)
		}
		if slices.Sort(got); !slices.Equal(got, l.absent) {
			t.Errorf("look %d, after %v: absent from %v, want %v", i, l.at, got, l.absent)
		}
	}
}

// meeting are two nodes with one address, of which each has its own view.
type meeting struct {
	nodes [2]overlay
	ids   [2]string
	seen  [2]roster.Result
}

// TestAfterAPartition: whichever of the two has which id, and whoever was away from where,
// in the end one of them has the address, and the other one another.
func TestAfterAPartition(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	lease, pool := 30*time.Minute, netip.MustParsePrefix("100.112.0.0/12")
	four := netip.MustParseAddr("100.112.0.9")
	for name, c := range map[string]struct {
		away [2][]string // from which services each was away; both tell of both
		wins string      // "" : one of them
	}{
		"each had a service of its own": {[2][]string{{"t"}, {"s"}}, "m1"},
		"the first one had none":        {[2][]string{{"s", "t"}, nil}, "m5"},
		"the second one had none":       {[2][]string{nil, {"s", "t"}}, "m1"},
		"neither had any":               {[2][]string{{"s", "t"}, {"s", "t"}}, "m1"},
	} {
		m := meeting{ids: [2]string{"m1", "m5"}}
		for i := range m.nodes {
			m.nodes[i] = overlay{Node: "n" + m.ids[i], Six: topology.Named6(topology.Overlay6("c"), m.ids[i]), Four: four, Prefix: topology.Overlay6("c"), Since: now.Add(-48 * time.Hour), witness: witness{Attended: map[string]time.Time{}}}
			for _, s := range []string{"s", "t"} {
				m.nodes[i].Attended[s] = now.Add(-time.Second)
				if slices.Contains(c.away[i], s) {
					m.nodes[i].Attended[s] = now.Add(-2 * time.Hour)
				}
			}
		}
		for at := time.Duration(0); at <= 2*limit.MeshDispute; at += 10 * time.Second {
			for i := range m.nodes {
				m.look(i)
				ch := choice{id: m.ids[i], pool: pool, young: lease, others: m.seen[i].Members, claims: claimsOf(m.seen[i], m.ids[i]), derived: topology.Overlay6("c")}
				m.nodes[i] = m.nodes[i].attend([]string{"s", "t"}, now.Add(at), lease).choose(ch, now.Add(at))
			}
		}
		has := ""
		for i, n := range m.nodes {
			switch {
			case n.Four == four:
				has += m.ids[i]
			case !n.Four.IsValid() || !pool.Contains(n.Four):
				t.Errorf("%s: %s has %v", name, m.ids[i], n.Four)
			case n.Gave == nil || n.Gave.Address != four || n.Gave.Now != n.Four || n.Gave.fault().Code != fault.CodeOverlay:
				t.Errorf("%s: %s tells %+v", name, m.ids[i], n.Gave)
			}
		}
		if has != c.wins {
			t.Errorf("%s: %q have the address, want %q", name, has, c.wins)
		}
	}
}

// look is what one node hears of the other: the roster gives it its own address.
func (m *meeting) look(i int) {
	other := m.nodes[1-i]
	from := []roster.Source{{Tier: roster.TierNative, Name: "s"}, {Tier: roster.TierNative, Name: "t"}}
	it := roster.Member{Facts: roster.Facts{ID: m.ids[1-i], Node: other.Node, Overlay4: other.Four}, Tier: roster.TierNative}
	for _, s := range from {
		it.Entries = append(it.Entries, roster.Entry{ID: it.ID, Source: s})
	}
	m.seen[i] = roster.Result{Members: []roster.Member{it}}
	if other.Four == m.nodes[i].Four {
		m.seen[i].Members[0].Overlay4 = netip.Addr{}
		m.seen[i].Conflicts = []roster.Conflict{{
			Field: roster.FieldOverlay4, Value: other.Four.String(), Kept: roster.Claimant{ID: m.ids[i], Tier: roster.TierNative},
			Refused: roster.Claimant{ID: it.ID, Tier: roster.TierNative, Sources: from},
		}}
	}
}

// TestAFullDiskKeepsTheAddresses: who has chosen before starts with that, though it cannot be
// written what is new of the services; the status says so until it can. An address that is
// not on disk is none.
func TestAFullDiskKeepsTheAddresses(t *testing.T) {
	dir := t.TempDir()
	m, k := newRoom(t, dir, nil)
	k.attends = []string{"s"}
	if _, err := m.reconsider(roster.Result{}); err != nil {
		t.Fatal(err)
	}
	was := m.overlay
	m, k = newRoom(t, dir, nil)
	k.attends = []string{"s", "another"}
	m.cfg.StateDir = filepath.Join(dir, overlayFile) // which is no directory
	for range 2 {
		if changed, err := m.reconsider(roster.Result{}); err != nil || changed || !m.overlay.equal(was) {
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
	if again, _ := newRoom(t, dir, nil); len(again.overlay.Attended) != 2 {
		t.Errorf("what was attended is not kept: %v", again.overlay.Attended)
	}
}

// TestAnAddressIsGivenUp: the room takes another one, keeps it, and says so in its status.
func TestAnAddressIsGivenUp(t *testing.T) {
	dir := t.TempDir()
	m, k := newRoom(t, dir, nil)
	k.attends = []string{"s"}
	if _, err := m.reconsider(roster.Result{}); err != nil {
		t.Fatal(err)
	}
	four := m.overlay.Four
	m.overlay.Since = time.Now().Add(-48 * time.Hour)
	m.overlay.Attended = map[string]time.Time{"s": time.Now().Add(-2 * time.Hour)}
	if err := m.overlay.write(dir); err != nil {
		t.Fatal(err)
	}
	m, k = newRoom(t, dir, nil) // it was off for long
	k.attends = []string{"s"}
	from := []roster.Source{{Tier: roster.TierNative, Name: "s"}}
	conflict := roster.Result{
		Members:   []roster.Member{{Facts: roster.Facts{ID: "!", Node: "b"}, Entries: []roster.Entry{{ID: "!"}}}},
		Conflicts: []roster.Conflict{{Field: roster.FieldOverlay4, Value: four.String(), Kept: roster.Claimant{ID: m.id, Tier: roster.TierNative}, Refused: roster.Claimant{ID: "!", Tier: roster.TierNative, Sources: from}}},
	}
	changed, err := m.reconsider(conflict)
	if err != nil || !changed || m.overlay.Four == four || !m.overlay.Four.IsValid() {
		t.Fatalf("it has %v, changed %v, %v", m.overlay.Four, changed, err)
	}
	if w := strings.Join(m.Status().Warnings, "\n"); !strings.Contains(w, "mesh_overlay") || !strings.Contains(w, four.String()) || !strings.Contains(w, "b (member !)") {
		t.Errorf("the status warns of %q", w)
	}
	again, _ := newRoom(t, dir, nil)
	if again.overlay.Four != m.overlay.Four {
		t.Errorf("after a restart it has %v", again.overlay.Four)
	}
	k.attends = []string{"s"}
	conflict.Conflicts[0].Value = m.overlay.Four.String()
	m.overlay.Since = time.Now().Add(-time.Hour)
	if changed, _ := m.reconsider(conflict); changed {
		t.Error("a thief that follows takes the next one too")
	}
}
