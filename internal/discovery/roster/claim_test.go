// SPDX-License-Identifier: Apache-2.0

package roster

import (
	"slices"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/member"
)

// proves is a native entry whose key its holder has signed for, or not.
func proves(f member.Facts, version uint64, proven bool) Said {
	s := native(f, version)
	s.Proven = proven
	return s
}

// TestWhoHasTheKey: a key is that of the member for which its holder has signed,
// whatever the ids; where nobody has, that of the smaller id.
func TestWhoHasTheKey(t *testing.T) {
	victim := member.Facts{ID: "z", Node: "nz", Key: key(1), Endpoints: at(member.KindOwn, "192.0.2.1:1")}
	evil := member.Facts{ID: "a", Node: "na", Key: key(1), Endpoints: at(member.KindOwn, "192.0.2.9:9")}
	static := from(TierStatic, member.Facts{ID: "s", Node: "nz", Key: key(1)})
	for _, c := range []struct {
		name string
		said []Said
		want string
	}{
		{"the proven one, with a larger id", []Said{proves(victim, 1, true), proves(evil, 9, false)},
			"z 1 nz 192.0.2.1:1/own\n! publicKey native/z over native/a\n"},
		{"nobody proves it: the smaller id", []Said{proves(victim, 1, false), proves(evil, 9, false)},
			"a 1 na 192.0.2.9:9/own\n! publicKey native/a over native/z\n"},
		{"both prove it: the newest word of the node", []Said{proves(victim, 5, true), proves(evil, 3, true)},
			"z 1 nz 192.0.2.1:1/own\n! publicKey native/z over native/a\n"},
		{"a file says whose it is", []Said{static, proves(evil, 1, false), proves(victim, 1, false)},
			"s 1 nz 192.0.2.9:9/own\n! publicKey native/a over native/z\n"},
	} {
		for range 2 {
			if got := show(Merge(now(), me(), c.said, Rules{})); got != c.want {
				t.Errorf("%s:\ngot\n%swant\n%s", c.name, got, c.want)
			}
			slices.Reverse(c.said)
		}
	}
}

// TestWhoHasTheName: the smaller id, whoever proves a key; a key of one's own is no right to a name.
func TestWhoHasTheName(t *testing.T) {
	for field, state := range map[Field]func(*member.Facts){
		FieldNode:     func(f *member.Facts) { f.Node = "n" },
		FieldNodename: func(f *member.Facts) { f.Nodename = "n" },
	} {
		victim, evil := member.Facts{ID: "z", Key: key(1)}, member.Facts{ID: "a", Key: key(2)}
		state(&victim)
		state(&evil)
		for _, proven := range []bool{false, true} {
			r := Merge(now(), me(), []Said{proves(victim, 1, proven), proves(evil, 9, false)}, Rules{})
			if len(r.Members) != 2 || len(r.Conflicts) != 1 || r.Conflicts[0].Field != field || r.Conflicts[0].Kept.ID != "a" {
				t.Errorf("%s: %s", field, show(r))
			}
		}
	}
}

// TestRemovalSilencesItsOwnNode: a removal takes along what lower tiers say of the node
// that signed it, and of no other one whose key or name it had claimed.
func TestRemovalSilencesItsOwnNode(t *testing.T) {
	victim := from(TierKubernetes, member.Facts{ID: "talos-1", Node: "talos-1", Nodename: "talos-1", Key: key(1)})
	gone := func(f member.Facts, proven bool) Said {
		s := proves(f, 2, proven)
		s.Removed = true
		return s
	}
	const lives = "talos-1 1 talos-1\n"
	for _, c := range []struct {
		name    string
		removal Said
		want    string
	}{
		{"its key, under another name", gone(member.Facts{ID: "evil", Node: "x", Key: key(1)}, false), lives},
		{"its name, with another key", gone(member.Facts{ID: "evil", Node: "talos-1", Key: key(2)}, false), lives},
		{"its key and name, unproven", gone(member.Facts{ID: "evil", Node: "talos-1", Key: key(1)}, false), lives},
		{"its key, and it was proven", gone(member.Facts{ID: "it", Node: "x", Key: key(1)}, true), ""},
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
	a := native(member.Facts{ID: "a", Node: "na", Key: key(1), Ranges: ranges("10.0.0.0/24")}, 1)
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
	live := native(member.Facts{ID: "a", Node: "na", Key: key(1)}, 1)
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

// TestProvenIsTheKeyThatCounts: what an entry proves of its key says nothing of another entry's.
func TestProvenIsTheKeyThatCounts(t *testing.T) {
	own, others := member.Facts{ID: "x", Node: "nx", Key: key(1)}, member.Facts{ID: "x", Node: "nx", Key: key(7)}
	static := from(TierStatic, member.Facts{ID: "s", Node: "nx", Key: key(7)})
	for name, c := range map[string]struct {
		said []Said
		want bool
	}{
		"shown":                     {[]Said{proves(own, 1, true)}, true},
		"claimed":                   {[]Said{proves(own, 1, false)}, false},
		"a newer one of another":    {[]Said{proves(own, 1, true), proves(others, 2, false)}, false},
		"a list has another key":    {[]Said{static, proves(own, 1, true)}, false},
		"a newer one that is shown": {[]Said{proves(others, 1, false), proves(own, 2, true)}, true},
	} {
		r := Merge(now(), me(), c.said, Rules{})
		if len(r.Members) != 1 || r.Members[0].Proven != c.want {
			t.Errorf("%s: %+v", name, r.Members)
		}
	}
}
