// SPDX-License-Identifier: Apache-2.0

package roster

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/member"
)

func now() time.Time { return time.Date(2026, 11, 22, 5, 0, 0, 0, time.UTC) }

func in(minutes int) time.Time { return now().Add(time.Duration(minutes) * time.Minute) }

func key(b byte) member.Key { return member.Key{b} }

func ranges(s ...string) (out []netip.Prefix) {
	for _, p := range s {
		out = append(out, netip.MustParsePrefix(p))
	}
	return out
}

func at(kind member.Kind, s ...string) (out []member.Endpoint) {
	for _, p := range s {
		out = append(out, member.Endpoint{Addr: netip.MustParseAddrPort(p), Kind: kind})
	}
	return out
}

func native(f member.Facts, version uint64) Said {
	return Said{Source: Source{Tier: TierNative, Name: "d1"}, Facts: f, Version: version, Until: in(30)}
}

func from(t Tier, f member.Facts) Said {
	return Said{Source: Source{Tier: t, Name: t.String()}, Facts: f}
}

func me() Self {
	return Self{Tier: TierNative, Facts: member.Facts{ID: "me", Node: "here", Key: key(99), Overlay4: netip.MustParseAddr("100.64.0.99")}}
}

// show writes members as id, key's first byte, node and what the scene is about.
func show(r Result) string {
	var b strings.Builder
	for _, m := range r.Members {
		b.WriteString(m.ID + " " + string('0'+m.Key[0]) + " " + m.Node)
		if m.Overlay4.IsValid() {
			b.WriteString(" " + m.Overlay4.String())
		}
		for _, p := range m.Ranges {
			b.WriteString(" " + p.String())
		}
		for _, w := range m.Endpoints {
			b.WriteString(" " + w.Addr.String() + "/" + string(w.Kind))
		}
		b.WriteString("\n")
	}
	for _, c := range r.Conflicts {
		b.WriteString("! " + string(c.Field) + " " + c.Kept.Tier.String() + "/" + c.Kept.ID + " over " + c.Refused.Tier.String() + "/" + c.Refused.ID + "\n")
	}
	return b.String()
}

func TestMerge(t *testing.T) {
	derived := member.Address6(member.Overlay6("c"), "z")
	a := member.Facts{ID: "a", Node: "na", Key: key(1)}
	with := func(f member.Facts, change func(*member.Facts)) member.Facts { change(&f); return f }
	overlay := netip.MustParseAddr("100.64.0.1")
	for _, c := range []struct {
		name string
		said []Said
		want string
	}{
		{"nobody", nil, ""},
		{"one source suffices", []Said{from(TierStatic, a)}, "a 1 na\n"},
		{"by key, whatever it is called", []Said{native(a, 1), from(TierOlder, member.Facts{ID: "x", Node: "xx", Key: key(1), Endpoints: at(member.KindOwn, "192.0.2.1:1")})},
			"a 1 na 192.0.2.1:1/own\n"},
		{"by node name", []Said{native(a, 1), from(TierKubernetes, member.Facts{ID: "k", Node: "na", Ranges: ranges("10.0.0.0/24")})}, "a 1 na 10.0.0.0/24\n"},
		{"by the node's name in Kubernetes", []Said{native(with(a, func(f *member.Facts) { f.Nodename = "kn" }), 1), from(TierKubernetes, member.Facts{ID: "kn", Nodename: "kn", Ranges: ranges("10.0.0.0/24")})},
			"a 1 na 10.0.0.0/24\n"},
		{"never by hostname", []Said{native(member.Facts{ID: "a", Hostname: "h", Key: key(1)}, 1), from(TierOlder, member.Facts{ID: "x", Hostname: "h"})}, "a 1 \nx 0 \n"},
		{"a lower tier gives a key where none is", []Said{from(TierStatic, member.Facts{ID: "s", Node: "na", Ranges: ranges("10.0.0.0/24")}), native(a, 1)}, "s 1 na 10.0.0.0/24\n"},
		{"ranges of the highest tier alone", []Said{native(with(a, func(f *member.Facts) { f.Ranges = ranges("10.0.0.0/24") }), 1), from(TierOlder, member.Facts{ID: "x", Key: key(1), Ranges: ranges("0.0.0.0/0")})},
			"a 1 na 10.0.0.0/24\n"},
		{"newest version of an entry", []Said{native(with(a, func(f *member.Facts) { f.Ranges = ranges("10.9.0.0/24") }), 1), {Source: Source{Tier: TierNative, Name: "d2"}, Facts: a, Version: 2, Until: in(1)}}, "a 1 na\n"},
		{"annotations beside an object, of which they say what it leaves out", []Said{
			{Source: Source{Tier: TierKubernetes, Name: "members"}, Facts: member.Facts{ID: "k", Nodename: "k", Key: key(1), Overlay4: overlay}, Version: 7, Until: in(1)},
			from(TierKubernetes, member.Facts{ID: "k", Nodename: "k", Node: "nk", Key: key(2), Ranges: ranges("10.0.0.0/24")})}, "k 1 nk 100.64.0.1 10.0.0.0/24\n"},
		{"an older version of an object", []Said{
			{Source: Source{Tier: TierKubernetes, Name: "m1"}, Facts: member.Facts{ID: "k", Key: key(1)}, Version: 7},
			{Source: Source{Tier: TierKubernetes, Name: "m2"}, Facts: member.Facts{ID: "k", Node: "nk"}, Version: 6}}, "k 1 \n"},
		{"lease over", []Said{{Source: Source{Tier: TierNative, Name: "d1"}, Facts: a, Version: 1, Until: now()}}, ""},
		{"another key for a node", []Said{native(a, 1), from(TierOlder, member.Facts{ID: "x", Node: "na", Key: key(2), Endpoints: at(member.KindOwn, "192.0.2.1:1")})},
			"a 1 na\n! publicKey native/a over older/x\n"},
		{"two of a tier with one name", []Said{native(member.Facts{ID: "b", Node: "na", Key: key(2)}, 9), native(a, 1)}, "b 2 \na 1 na\n! node native/a over native/b\n"},
		{"two of a tier with one key", []Said{native(member.Facts{ID: "b", Node: "nb", Key: key(1)}, 9), native(a, 1)}, "a 1 na\n! publicKey native/a over native/b\n"},
		{"two with one overlay address", []Said{native(with(a, func(f *member.Facts) { f.Overlay4 = overlay }), 1), from(TierStatic, member.Facts{ID: "z", Node: "nz", Key: key(2), Overlay4: overlay})},
			"a 1 na\nz 2 nz 100.64.0.1\n! overlay4 static/z over native/a\n"},
		{"this node's overlay address", []Said{from(TierStatic, with(a, func(f *member.Facts) { f.Overlay4 = me().Facts.Overlay4 }))}, "a 1 na 100.64.0.99\n! overlay4 static/a over native/me\n"},
		{"this node's overlay address, by a smaller id", []Said{native(with(a, func(f *member.Facts) { f.Overlay4 = me().Facts.Overlay4 }), 1)}, "a 1 na 100.64.0.99\n! overlay4 native/a over native/me\n"},
		{"this node's overlay address, by a greater id", []Said{native(member.Facts{ID: "z", Key: key(2), Node: "nz", Overlay4: me().Facts.Overlay4}, 1)}, "z 2 nz\n! overlay4 native/me over native/z\n"},
		{"an overlay address that follows from the greater id", []Said{
			native(member.Facts{ID: "z", Key: key(2), Node: "nz", Overlay6: derived}, 1), native(with(a, func(f *member.Facts) { f.Overlay6 = derived }), 1),
		}, "a 1 na\nz 2 nz\n! overlay6 native/z over native/a\n"},
		{"this node's key", []Said{native(member.Facts{ID: "b", Key: key(99)}, 1)}, "! publicKey native/me over native/b\n"},
		{"this node's id", []Said{native(member.Facts{ID: "me", Key: key(3)}, 1)}, "! id native/me over native/me\n"},
		{"this node as others see it", []Said{native(me().Facts, 1), from(TierOlder, member.Facts{ID: "x", Key: key(99)}), from(TierKubernetes, member.Facts{ID: "k", Node: "here"})}, ""},
		{"this node, named by the file before it speaks", []Said{from(TierStatic, member.Facts{ID: "s", Node: "here", Ranges: ranges("10.0.0.0/24")})}, ""},
		{"succession", []Said{native(a, 9), func() Said {
			s := native(member.Facts{ID: "b", Node: "na", Key: key(2)}, 1)
			s.Replaces = "a"
			return s
		}()}, "b 2 na\n"},
		{"observed by another", []Said{native(a, 1), func() Said {
			s := native(member.Facts{ID: "b", Node: "nb", Key: key(2)}, 1)
			s.Facts.Observed = []member.Observation{{Key: key(1), Addr: netip.MustParseAddrPort("198.51.100.1:5")}}
			return s
		}()}, "a 1 na 198.51.100.1:5/observed\nb 2 nb\n"},
		{"another cluster's node has the key of one of the own", []Said{from(TierKubernetes, member.Facts{ID: "n", Node: "na", Key: key(1), Overlay4: overlay}),
			from(TierLinked, member.Facts{ID: "b.x", Node: "b.x", Key: key(1)})}, "n 1 na 100.64.0.1\n"},
		{"another cluster's node has the address of one of the own", []Said{from(TierKubernetes, member.Facts{ID: "n", Node: "na", Key: key(1), Overlay4: overlay}),
			from(TierLinked, member.Facts{ID: "b.x", Node: "b.x", Key: key(2), Overlay4: overlay})}, "b.x 2 b.x\nn 1 na 100.64.0.1\n! overlay4 kubernetes/n over linked/b.x\n"},
		{"remembered, until it is heard", []Said{{Source: Source{TierOlder, "o", true}, Facts: with(a, func(f *member.Facts) { f.Ranges = ranges("10.0.0.0/24") }), Until: in(900)}, from(TierOlder, a)}, "a 1 na\n"},
		{"a replay loses against what is remembered", []Said{{Source: Source{TierNative, "d1", true}, Facts: with(a, func(f *member.Facts) { f.Ranges = ranges("10.0.0.0/24") }), Version: 5, Until: in(900)}, native(a, 4)}, "a 1 na 10.0.0.0/24\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for range 2 {
				if got := show(Merge(now(), me(), c.said, Rules{})); got != c.want {
					t.Errorf("got\n%swant\n%s", got, c.want)
				}
				slices.Reverse(c.said)
			}
		})
	}
}

func removed(f member.Facts, version uint64) Said {
	s := native(f, version)
	s.Removed = true
	return s
}

func TestRemoval(t *testing.T) {
	a := member.Facts{ID: "a", Node: "na", Key: key(1)}
	older := from(TierOlder, member.Facts{ID: "x", Node: "na", Key: key(1)})
	proven := func(s Said) Said {
		s.Proven = true
		return s
	}
	for _, c := range []struct {
		name string
		said []Said
		want string
	}{
		{"at once, and at every service", []Said{native(a, 1), removed(member.Facts{ID: "a"}, 2)}, ""},
		{"lower tiers too", []Said{proven(removed(a, 2)), older, from(TierKubernetes, member.Facts{ID: "k", Node: "na"})}, ""},
		{"what has its name and no key, unproven too", []Said{removed(a, 2), from(TierKubernetes, member.Facts{ID: "k", Node: "na"})}, ""},
		{"not of a key that it had not proven", []Said{removed(a, 2), older}, "x 1 na\n"},
		{"who it was is known of the entry before", []Said{proven(native(a, 1)), removed(member.Facts{ID: "a"}, 2), older}, ""},
		{"not what a higher tier states", []Said{removed(a, 2), older, from(TierStatic, member.Facts{ID: "s", Key: key(1)})}, "s 1 na\n"},
		{"not another member of the name", []Said{removed(a, 2), native(member.Facts{ID: "b", Node: "na", Key: key(2)}, 1)}, "b 2 na\n"},
		{"not a lower entry with another key", []Said{removed(a, 2), from(TierOlder, member.Facts{ID: "x", Node: "na", Key: key(2)})}, "x 2 na\n"},
		{"back with a newer version", []Said{removed(a, 2), native(a, 3)}, "a 1 na\n"},
		{"an unsigned one is not believed", []Said{{Source: Source{Tier: TierOlder, Name: "o"}, Facts: a, Removed: true}, from(TierOlder, a)}, "a 1 na\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := show(Merge(now(), me(), c.said, Rules{})); got != c.want {
				t.Errorf("got\n%swant\n%s", got, c.want)
			}
		})
	}
}

func TestSourcesOfEveryFact(t *testing.T) {
	f := member.Facts{ID: "a", Node: "na", Key: key(1), OS: "x", Endpoints: at(member.KindOwn, "192.0.2.1:1")}
	two := native(f, 7)
	two.Source.Name, two.Until = "d2", in(40)
	r := Merge(now(), me(), []Said{native(f, 7), two, from(TierKubernetes, member.Facts{ID: "k", Node: "na", OS: "y", Role: "worker"})}, Rules{})
	if len(r.Members) != 1 {
		t.Fatalf("%d members", len(r.Members))
	}
	m := r.Members[0]
	d1, d2, k := Source{Tier: TierNative, Name: "d1"}, Source{Tier: TierNative, Name: "d2"}, Source{Tier: TierKubernetes, Name: "kubernetes"}
	for field, want := range map[Field][]Source{FieldNode: {d1, d2, k}, FieldKey: {d1, d2}, FieldOS: {d1, d2}, FieldRole: {k}, FieldID: {d1, d2, k}, FieldRanges: nil} {
		if got := m.Sources[field]; !slices.Equal(got, want) {
			t.Errorf("%s is of %v, not %v", field, got, want)
		}
	}
	if got := m.Origins[0].Sources; !slices.Equal(got, []Source{d1, d2}) {
		t.Errorf("the endpoint is of %v", got)
	}
	if m.OS != "x" || m.Role != "worker" || len(m.Entries) != 3 || !m.Until.IsZero() {
		t.Errorf("%+v", m)
	}
	if r = Merge(now(), me(), []Said{native(f, 7), two}, Rules{}); !r.Members[0].Until.Equal(in(40)) {
		t.Errorf("the longest lease does not count: %v", r.Members[0].Until)
	}
}

func TestSelfLearnsWhereItIs(t *testing.T) {
	b := native(member.Facts{ID: "b", Key: key(2)}, 1)
	b.Facts.Observed = []member.Observation{{Key: key(99), Addr: netip.MustParseAddrPort("198.51.100.1:5")}}
	r := Merge(now(), me(), []Said{b, from(TierOlder, member.Facts{ID: "x", Key: key(99), OS: "z", Endpoints: at(member.KindMapped, "198.51.100.2:5")})}, Rules{})
	got := show(Result{Members: []Member{r.Self}})
	if !strings.HasSuffix(got, " here 100.64.0.99 198.51.100.1:5/observed 198.51.100.2:5/mapped\n") {
		t.Errorf("self is %q", got)
	}
	if len(r.Self.Endpoints) > 0 && !slices.Equal(r.Self.Origins[0].Observers, []string{"b"}) {
		t.Errorf("observed by %v", r.Self.Origins[0].Observers)
	}
}

func TestRules(t *testing.T) {
	s := []Said{from(TierStatic, member.Facts{ID: "s", Node: "na", Ranges: ranges("10.0.0.0/24")}), from(TierOlder, member.Facts{ID: "x", Node: "na", Key: key(2)})}
	if got, want := show(Merge(now(), me(), s, Rules{KeysFrom: TierNative})), "s 0 na 10.0.0.0/24\n! publicKey static/s over older/x\n"; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	flood := from(TierOlder, member.Facts{ID: "x", Key: key(1), Endpoints: at(member.KindOwn, "192.0.2.1:1", "192.0.2.2:1", "192.0.2.3:1")})
	r := Merge(now(), me(), []Said{flood, native(member.Facts{ID: "a", Key: key(1), Endpoints: at(member.KindMapped, "203.0.113.1:1")}, 1)}, Rules{Endpoints: 2})
	if got, want := show(r), "a 1  203.0.113.1:1/mapped 192.0.2.1:1/own\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestExpire(t *testing.T) {
	a, b := native(member.Facts{ID: "a"}, 1), from(TierStatic, member.Facts{ID: "s"})
	left, next := Expire(now(), []Said{a, b})
	if len(left) != 2 || !next.Equal(in(30)) {
		t.Errorf("%d left, next %v", len(left), next)
	}
	if left, next = Expire(in(30), []Said{a, b}); len(left) != 1 || !next.IsZero() {
		t.Errorf("%d left, next %v", len(left), next)
	}
}

func TestEvents(t *testing.T) {
	a := member.Facts{ID: "a", Node: "na", Key: key(1)}
	merge := func(s ...Said) Result { return Merge(now(), me(), s, Rules{}) }
	moved, renewed, rekeyed := a, native(a, 2), a
	moved.Endpoints, rekeyed.Key = at(member.KindOwn, "192.0.2.1:1"), key(5)
	renewed.Until = in(60)
	clash := native(member.Facts{ID: "b", Node: "na", Key: key(2)}, 1)
	for _, c := range []struct {
		name          string
		before, after Result
		want          string
	}{
		{"joined", merge(), merge(native(a, 1)), "joined a []"},
		{"renewed", merge(native(a, 1)), merge(renewed), ""},
		{"one more source", merge(native(a, 1)), merge(native(a, 1), from(TierOlder, a)), ""},
		{"changed", merge(native(a, 1)), merge(native(moved, 2)), "changed a [endpoints]"},
		{"another key", merge(native(a, 1)), merge(native(rekeyed, 2)), "changed a [publicKey]"},
		{"left", merge(native(a, 1)), merge(), "left a []"},
		{"conflict", merge(native(a, 1)), merge(native(a, 1), clash), "joined b []; conflict node"},
		{"settled", merge(native(a, 1), clash), merge(native(a, 1)), "left b []; settled node"},
	} {
		var got []string
		for _, e := range Events(c.before, c.after) {
			if e.Conflict != nil {
				got = append(got, string(e.What)+" "+string(e.Conflict.Field))
				continue
			}
			fields := []string{}
			for _, f := range e.Fields {
				fields = append(fields, string(f))
			}
			got = append(got, string(e.What)+" "+e.Member.ID+" ["+strings.Join(fields, " ")+"]")
		}
		if s := strings.Join(got, "; "); s != c.want {
			t.Errorf("%s: %q, want %q", c.name, s, c.want)
		}
	}
}
