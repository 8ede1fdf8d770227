// SPDX-License-Identifier: Apache-2.0

package roster

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/member"
)

// gives is known for a member that has taken another key.
func gives(minutes int, f Facts, before byte, proven, previous bool) Said {
	f.PreviousKey = key(before)
	s := known(minutes, f, 7, proven)
	s.Previous = previous
	return s
}

// TestWhoHasThePreviousKey: a key that is given up is the member's for as long as nobody
// else has it; the holder's word for it goes before the claim of who has none.
func TestWhoHasThePreviousKey(t *testing.T) {
	bob := Facts{ID: "bob", Node: "nb", Key: key(2), Endpoints: at(KindOwn, "192.0.2.1:1")}
	evil := Facts{ID: "a", Node: "na", Key: key(1), Endpoints: at(KindOwn, "192.0.2.9:9")}
	other := Facts{ID: "c", Node: "nc", Key: key(3)}
	older := func(f Facts, first int) Said {
		s := from(TierOlder, f)
		s.First = in(-first)
		return s
	}
	const line = "bob 2 nb 192.0.2.1:1/own\n"
	for _, c := range []struct {
		name string
		said []Said
		has  bool // bob keeps it
		want string
	}{
		{"nobody else has it", []Said{gives(1, bob, 1, true, true)}, true, line},
		{"nobody else has it, unproven", []Said{gives(1, bob, 1, false, false)}, true, line},
		{"it is this node's", []Said{gives(1, bob, 99, true, true)}, false, line + "! previousKey native/me over native/bob\n"},
		{"proven, and another claims it as a key, known before", []Said{gives(1, bob, 1, true, true), known(9, evil, 1, false)}, true,
			line + "! publicKey native/bob over native/a\n"},
		{"unproven, and another claims it", []Said{gives(9, bob, 1, true, false), known(1, evil, 1, false)}, false,
			"a 1 na 192.0.2.9:9/own\n" + line + "! previousKey native/a over native/bob\n"},
		{"another has it, proven", []Said{gives(9, bob, 1, true, true), known(1, evil, 1, true)}, false,
			"a 1 na 192.0.2.9:9/own\n" + line + "! previousKey native/a over native/bob\n"},
		{"two give it up, one proven", []Said{gives(1, bob, 1, true, true), gives(9, other, 1, true, false)}, true,
			line + "c 3 nc\n! previousKey native/bob over native/c\n"},
		{"two give it up, neither proven: the incumbent", []Said{gives(1, bob, 1, false, false), gives(9, other, 1, true, false)}, false,
			line + "c 3 nc\n! previousKey native/c over native/bob\n"},
		{"a file gives it to another one", []Said{gives(9, bob, 1, true, true), from(TierStatic, evil)}, false,
			"a 1 na 192.0.2.9:9/own\n" + line + "! previousKey static/a over native/bob\n"},
		{"unproven, and a lower tier has another under it", []Said{gives(9, bob, 1, true, false), older(evil, 1)}, false,
			"a 1 na 192.0.2.9:9/own\n" + line + "! previousKey older/a over native/bob\n"},
		{"proven: what a lower tier says of it is the member's", []Said{gives(1, bob, 1, true, true), older(Facts{ID: "x", Node: "nb", Key: key(1), OS: "old"}, 9)}, true, line},
		{"proven, and its name is known longer below under the old key: no conflict", []Said{
			gives(1, bob, 1, true, true), older(Facts{ID: "x", Node: "nb", Key: key(1)}, 99)}, true, line},
		{"unproven: the lower tier has the name and the key", []Said{gives(1, bob, 1, true, false), older(Facts{ID: "x", Node: "nb", Key: key(1)}, 99)}, false,
			"bob 2  192.0.2.1:1/own\nx 1 nb\n! node older/x over native/bob\n! previousKey older/x over native/bob\n"},
		{"without a key that takes its place it is none", []Said{gives(1, bob, 4, true, true), gives(1, Facts{ID: "d", Node: "nd"}, 1, true, true), older(Facts{ID: "x", Node: "nd", Key: key(1)}, 1)}, true,
			line + "d 1 nd\n"},
		{"one that is its key too is none", []Said{gives(1, bob, 2, true, true)}, false, line},
	} {
		for range 2 {
			r := Merge(now(), me(), c.said, Rules{})
			if got := show(r); got != c.want {
				t.Errorf("%s:\ngot\n%swant\n%s", c.name, got, c.want)
			}
			i := slices.IndexFunc(r.Members, func(m Member) bool { return m.Key == key(2) })
			if m := r.Members[i]; (m.PreviousKey != member.Key{}) != c.has || (len(m.Sources[FieldPrevious]) > 0) != c.has {
				t.Errorf("%s: it gives up %q of %v", c.name, m.PreviousKey, m.Sources[FieldPrevious])
			}
			slices.Reverse(c.said)
		}
	}
}

// TestThisNodesPreviousKey: who has it is this node, as it was.
func TestThisNodesPreviousKey(t *testing.T) {
	self := me()
	self.Facts.PreviousKey = key(1)
	r := Merge(now(), self, []Said{
		from(TierKubernetes, Facts{ID: "here", Nodename: "here", Key: key(1), Endpoints: at(KindOwn, "192.0.2.1:1")}),
		known(9, Facts{ID: "evil", Node: "x", Key: key(1)}, 1, false),
		gives(9, Facts{ID: "too", Node: "y", Key: key(3)}, 1, true, true),
	}, Rules{})
	if got, want := show(r), "too 3 y\n! previousKey native/me over native/too\n! publicKey native/me over native/evil\n"; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if r.Self.PreviousKey != key(1) || len(r.Self.Endpoints) != 1 || r.Members[0].PreviousKey != (member.Key{}) {
		t.Errorf("%+v", r)
	}
}

// TestNewKeyIsAChange: a new key with the old one beside it changes the member, and what
// others saw of either key is the member's.
func TestNewKeyIsAChange(t *testing.T) {
	saw := known(9, Facts{ID: "w", Node: "nw", Key: key(5)}, 1, true)
	saw.Observed = []Observation{{key(1), netip.MustParseAddrPort("198.51.100.1:1")}, {key(2), netip.MustParseAddrPort("198.51.100.2:2")}}
	merge := func(s Said) Result { return Merge(now(), me(), []Said{s, saw}, Rules{}) }
	before := merge(known(9, Facts{ID: "bob", Node: "nb", Key: key(1)}, 6, true))
	during := merge(gives(9, Facts{ID: "bob", Node: "nb", Key: key(2), Mesh: 1, RelayCluster: "c1", Relays: []string{"h2", "h1"}}, 1, true, true))
	for name, c := range map[string]struct {
		from, to Result
		want     []Field
		places   int
	}{
		"begins": {before, during, []Field{FieldKey, FieldMesh, FieldRelayCluster, FieldRelays, FieldPrevious, FieldEndpoints}, 2},
		"again":  {during, during, nil, 2},
		"ends":   {during, merge(known(9, Facts{ID: "bob", Node: "nb", Key: key(2), Mesh: 1, RelayCluster: "c1", Relays: []string{"h1", "h2"}}, 8, true)), []Field{FieldPrevious, FieldEndpoints}, 1},
	} {
		events := Events(c.from, c.to)
		if len(events) != min(len(c.want), 1) || len(events) > 0 && (events[0].What != Altered || !slices.Equal(events[0].Fields, c.want)) {
			t.Errorf("%s: %+v", name, events)
		}
		if got := len(c.to.Members[0].Endpoints); got != c.places {
			t.Errorf("%s: %d endpoints", name, got)
		}
	}
}

// TestRemovalSilencesThePreviousKey: who leaves while it takes another key leaves under both.
func TestRemovalSilencesThePreviousKey(t *testing.T) {
	old := from(TierKubernetes, Facts{ID: "n", Node: "nb", Nodename: "n", Key: key(1)})
	for _, proven := range []bool{false, true} {
		gone := gives(9, Facts{ID: "bob", Node: "x", Key: key(2)}, 1, true, proven)
		gone.Removed = true
		want := "n 1 nb\n"
		if proven {
			want = ""
		}
		if got := show(Merge(now(), me(), []Said{old, gone}, Rules{})); got != want {
			t.Errorf("proven %v: got %q, want %q", proven, got, want)
		}
	}
}
