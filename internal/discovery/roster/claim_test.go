// SPDX-License-Identifier: Apache-2.0

package roster

import (
	"slices"
	"testing"
)

// known is a native entry that was heard first some minutes ago.
func known(minutes int, f Facts, version uint64, proven bool) Said {
	s := native(f, version)
	s.First, s.Proven = in(-minutes), proven
	return s
}

// TestWhoHasTheKey: a key is that of the member for which its holder has signed,
// whatever the ids; where nobody has, that of the one who was known first.
func TestWhoHasTheKey(t *testing.T) {
	victim := Facts{ID: "z", Node: "nz", Key: key(1), Endpoints: at(KindOwn, "192.0.2.1:1")}
	evil := Facts{ID: "a", Node: "na", Key: key(1), Endpoints: at(KindOwn, "192.0.2.9:9")}
	static := from(TierStatic, Facts{ID: "s", Node: "nz", Key: key(1)})
	for _, c := range []struct {
		name string
		said []Said
		want string
	}{
		{"the proven one, with a larger id and heard later", []Said{known(1, victim, 1, true), known(9, evil, 9, false)},
			"z 1 nz 192.0.2.1:1/own\n! publicKey native/z over native/a\n"},
		{"nobody proves it: the incumbent, and both places are tried", []Said{known(9, victim, 1, false), known(1, evil, 9, false)},
			"z 1 nz 192.0.2.1:1/own 192.0.2.9:9/own\n! publicKey native/z over native/a\n"},
		{"heard at once: the smaller id", []Said{known(1, victim, 1, false), known(1, evil, 9, false)},
			"a 1 na 192.0.2.9:9/own 192.0.2.1:1/own\n! publicKey native/a over native/z\n"},
		{"both prove it: the newest word of the node", []Said{known(1, victim, 5, true), known(9, evil, 3, true)},
			"z 1 nz 192.0.2.1:1/own\n! publicKey native/z over native/a\n"},
		{"a file says whose it is", []Said{static, known(9, evil, 1, false), known(1, victim, 1, false)},
			"s 1 nz 192.0.2.9:9/own 192.0.2.1:1/own\n! publicKey native/a over native/z\n"},
	} {
		for range 2 {
			if got := show(Merge(now(), me(), c.said, Rules{})); got != c.want {
				t.Errorf("%s:\ngot\n%swant\n%s", c.name, got, c.want)
			}
			slices.Reverse(c.said)
		}
	}
}

// TestWhoHasTheName: who was known first, whatever the ids, for each name.
func TestWhoHasTheName(t *testing.T) {
	for field, state := range map[Field]func(*Facts){
		FieldNode:     func(f *Facts) { f.Node = "n" },
		FieldNodename: func(f *Facts) { f.Nodename = "n" },
	} {
		victim, evil := Facts{ID: "z", Key: key(1)}, Facts{ID: "a", Key: key(2)}
		state(&victim)
		state(&evil)
		for _, proven := range []bool{false, true} { // a key of one's own is no right to a name
			r := Merge(now(), me(), []Said{known(9, victim, 1, false), known(1, evil, 9, proven)}, Rules{})
			if len(r.Members) != 2 || len(r.Conflicts) != 1 || r.Conflicts[0].Field != field || r.Conflicts[0].Kept.ID != "z" {
				t.Errorf("%s: %s", field, show(r))
			}
		}
	}
}

// TestRivalsDisplaceNoPlaces: however many claim a key, the endpoints of the one who
// has it come first.
func TestRivalsDisplaceNoPlaces(t *testing.T) {
	said := []Said{known(9, Facts{ID: "z", Key: key(1), Endpoints: at(KindMapped, "203.0.113.1:1", "203.0.113.2:1")}, 1, false)}
	for _, id := range []string{"a", "b", "c"} {
		said = append(said, known(1, Facts{ID: id, Key: key(1), Endpoints: at(KindOwn, "192.0.2.1:1", "192.0.2.2:1", "192.0.2.3:1")}, 1, false))
	}
	r := Merge(now(), me(), said, Rules{Endpoints: 3})
	if len(r.Members) != 1 || len(r.Members[0].Endpoints) != 3 || r.Members[0].Endpoints[0].Addr.String() != "203.0.113.1:1" || r.Members[0].Endpoints[1].Addr.String() != "203.0.113.2:1" {
		t.Errorf("%s", show(r))
	}
}

// TestRemovalSilencesItsOwnNode: a removal takes along what lower tiers say of the node
// that signed it, and of no other one whose key or name it had claimed.
func TestRemovalSilencesItsOwnNode(t *testing.T) {
	victim := from(TierKubernetes, Facts{ID: "talos-1", Node: "talos-1", Nodename: "talos-1", Key: key(1)})
	victim.First = in(-9)
	gone := func(minutes int, f Facts, proven bool) Said {
		s := known(minutes, f, 2, proven)
		s.Removed = true
		return s
	}
	const lives = "talos-1 1 talos-1\n"
	for _, c := range []struct {
		name    string
		removal Said
		want    string
	}{
		{"its key, under another name", gone(20, Facts{ID: "evil", Node: "x", Key: key(1)}, false), lives},
		{"its name, with another key", gone(20, Facts{ID: "evil", Node: "talos-1", Key: key(2)}, false), lives},
		{"its key and name, later", gone(1, Facts{ID: "evil", Node: "talos-1", Key: key(1)}, false), lives},
		{"its key and name, from before", gone(20, Facts{ID: "it", Node: "talos-1", Key: key(1)}, false), ""},
		{"its key, and it was proven", gone(1, Facts{ID: "it", Node: "x", Key: key(1)}, true), ""},
	} {
		said := []Said{victim, c.removal}
		for range 2 {
			if got := show(Merge(now(), me(), said, Rules{})); got != c.want {
				t.Errorf("%s: got %q, want %q", c.name, got, c.want)
			}
			slices.Reverse(said)
		}
	}
}

// TestStale: what is stale says nothing beside what is not, counts until it is held no
// longer, and its change is no leave.
func TestStale(t *testing.T) {
	a := native(Facts{ID: "a", Node: "na", Key: key(1), Ranges: ranges("10.0.0.0/24")}, 1)
	a.Until, a.Stale, a.Held = in(-5), true, in(5)
	r := Merge(now(), me(), []Said{a}, Rules{})
	if len(r.Members) != 1 || !r.Members[0].Stale || !r.Members[0].Entries[0].Stale {
		t.Fatalf("%+v", r.Members)
	}
	if left, next := Expire(now(), []Said{a}); len(left) != 1 || !next.Equal(in(5)) {
		t.Errorf("%d left, next %v", len(left), next)
	}
	if r := Merge(in(5), me(), []Said{a}, Rules{}); len(r.Members) != 0 {
		t.Error("it is held for ever")
	}
	live := native(Facts{ID: "a", Node: "na", Key: key(1)}, 1)
	live.Source.Name = "d2"
	both := Merge(now(), me(), []Said{a, live}, Rules{})
	if len(both.Members) != 1 || both.Members[0].Stale || len(both.Members[0].Ranges) != 0 {
		t.Errorf("%+v", both.Members)
	}
	live.Facts.Ranges = a.Facts.Ranges
	if e := Events(r, Merge(now(), me(), []Said{live}, Rules{})); len(e) != 1 || e[0].What != Altered || !slices.Equal(e[0].Fields, []Field{FieldStale}) {
		t.Errorf("it comes back as %+v", e)
	}
}
