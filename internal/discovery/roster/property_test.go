// SPDX-License-Identifier: Apache-2.0

package roster

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tombolo-io/tombolo/internal/base/member"
)

// anySaid draws from few names, keys and addresses, so that much of it clashes.
func anySaid() *rapid.Generator[Said] {
	word := func(of string) *rapid.Generator[string] {
		return rapid.SampledFrom([]string{"", of + "1", of + "2", of + "3"})
	}
	return rapid.Custom(func(t *rapid.T) Said {
		s := Said{
			Source:  Source{Tier: rapid.SampledFrom([]Tier{TierOlder, TierKubernetes, TierNative, TierStatic}).Draw(t, "tier"), Name: rapid.SampledFrom([]string{"p", "q"}).Draw(t, "source")},
			Version: rapid.Uint64Range(0, 2).Draw(t, "version"),
		}
		s.Source.Cached = rapid.IntRange(0, 3).Draw(t, "cached") == 0
		s.Removed = rapid.IntRange(0, 7).Draw(t, "removed") == 0
		s.Proven = rapid.IntRange(0, 3).Draw(t, "proven") == 0
		if s.Stale = rapid.IntRange(0, 7).Draw(t, "stale") == 0; s.Stale {
			s.Held = in(rapid.IntRange(-1, 3).Draw(t, "held"))
		}
		s.Replaces = rapid.SampledFrom([]string{"", "", "", "i1", "i2", "i3"}).Draw(t, "replaces")
		if m := rapid.IntRange(-1, 3).Draw(t, "until"); m < 3 {
			s.Until = in(m)
		}
		f := &s.Facts
		f.ID = rapid.SampledFrom([]string{"i1", "i2", "i3", "i4", "me"}).Draw(t, "id")
		f.Node, f.Nodename, f.Role = word("n").Draw(t, "node"), word("k").Draw(t, "nodename"), member.Role(word("r").Draw(t, "role"))
		if k := rapid.SampledFrom([]byte{0, 1, 2, 3, 99}).Draw(t, "key"); k > 0 {
			f.Key = key(k)
		}
		if p := rapid.Byte().Draw(t, "pin"); p < 3 {
			f.Pin = member.Pin{p}
		}
		f.Engine = rapid.SampledFrom([]member.Engine{"", member.WireGuard, member.IPsec}).Draw(t, "engine")
		f.Mesh = rapid.Uint32Range(0, 2).Draw(t, "mesh")
		f.RelayCluster, f.Relays = word("c").Draw(t, "cluster"), rapid.SliceOfN(rapid.SampledFrom([]string{"h1", "h2"}), 0, 2).Draw(t, "relays")
		if o := rapid.IntRange(0, 3).Draw(t, "overlay"); o > 0 {
			f.Overlay4 = netip.AddrFrom4([4]byte{100, 64, 0, byte(96 + o)})
		}
		for _, n := range rapid.SliceOfN(rapid.IntRange(1, 3), 0, 2).Draw(t, "ranges") {
			f.Ranges = append(f.Ranges, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(n)}), 16))
		}
		for _, n := range rapid.SliceOfN(rapid.IntRange(1, 3), 0, 2).Draw(t, "endpoints") {
			f.Endpoints = append(f.Endpoints, member.Endpoint{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(n)}), 1),
				Kind: rapid.SampledFrom([]member.Kind{member.KindOwn, member.KindMapped, "new"}).Draw(t, "kind")})
		}
		if o := rapid.IntRange(0, 4).Draw(t, "observes"); o > 0 {
			s.Facts.Observed = []member.Observation{{Key: key(byte(o)), Addr: netip.MustParseAddrPort("198.51.100.1:1")}}
		}
		return s
	})
}

func same(t *rapid.T, what string, a, b Result) {
	if !reflect.DeepEqual(a, b) {
		t.Fatalf("%s:\n%+v\n%+v", what, a, b)
	}
}

// TestMergeKnowsNoOrder: the same is known however it came, and said twice it is
// no more. What has expired says nothing; a merge leaves its input alone.
func TestMergeKnowsNoOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		said := rapid.SliceOfN(anySaid(), 0, 12).Draw(t, "said")
		before := fmt.Sprint(said)
		want := Merge(now(), me(), said, Rules{})
		same(t, "again", want, Merge(now(), me(), said, Rules{}))
		same(t, "another order", want, Merge(now(), me(), rapid.Permutation(said).Draw(t, "order"), Rules{}))
		same(t, "twice", want, Merge(now(), me(), slices.Concat(said, said), Rules{}))
		left, next := Expire(now(), said)
		same(t, "expired", want, Merge(now(), me(), left, Rules{}))
		if !next.IsZero() {
			same(t, "until the next lease ends", want, Merge(next.Add(-time.Nanosecond), me(), said, Rules{}))
		}
		if fmt.Sprint(said) != before {
			t.Fatal("the input was changed")
		}
		if e := Events(want, want); len(e) > 0 {
			t.Fatalf("nothing happened, and yet: %v", e)
		}
	})
}

// TestMergeHasNoTwins: no two members share what only one can have, none is this
// node, and every fact has a source that stated it.
func TestMergeHasNoTwins(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		said := rapid.SliceOfN(anySaid(), 0, 12).Draw(t, "said")
		r := Merge(now(), me(), said, Rules{})
		seen := map[string]bool{}
		for _, m := range append(slices.Clone(r.Members), r.Self) {
			for _, u := range append(unique(), one(FieldKey, func(f *member.Facts) *member.Key { return &f.Key })) {
				if !u.stated(&m.Facts) {
					continue
				}
				v := string(u.field) + " " + u.text(&m.Facts)
				if seen[v] {
					t.Fatalf("two members have %s", v)
				}
				seen[v] = true
			}
		}
		for _, m := range r.Members {
			if m.Key == me().Facts.Key || m.ID == "me" && m.Tier == TierNative {
				t.Fatalf("this node is its own peer: %+v", m)
			}
			for _, u := range rules() {
				if u.stated(&m.Facts) != (len(m.Sources[u.field]) > 0) {
					t.Fatalf("%s of %s is of %v", u.field, m.ID, m.Sources[u.field])
				}
				for _, src := range m.Sources[u.field] {
					if !slices.ContainsFunc(said, func(s Said) bool { return s.Source == src && u.equal(&s.Facts, &m.Facts) && !s.over(now()) }) {
						t.Fatalf("%v never said %s of %s", src, u.field, m.ID)
					}
				}
			}
			if len(m.Origins) != len(m.Endpoints) {
				t.Fatalf("%s has %d endpoints with %d origins", m.ID, len(m.Endpoints), len(m.Origins))
			}
			for i, o := range m.Origins {
				if len(o.Sources) == 0 {
					t.Fatalf("endpoint %v without a source", m.Endpoints[i].Addr)
				}
			}
		}
	})
}

// TestLowerTierChangesNothing: with all that a lower tier says, each member that
// the higher ones know has every fact that they state, and no range or address
// more. Alone a lower tier says as much as ever.
func TestLowerTierChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		said := rapid.SliceOfN(anySaid(), 0, 14).Draw(t, "said")
		tier := rapid.SampledFrom([]Tier{TierKubernetes, TierNative, TierStatic}).Draw(t, "tier")
		self := me()
		self.Tier = TierStatic // else this node itself is what is taken away
		higher := slices.DeleteFunc(slices.Clone(said), func(s Said) bool { return s.Source.Tier < tier })
		all, alone := Merge(now(), self, said, Rules{}), Merge(now(), self, higher, Rules{})
		for _, m := range alone.Members {
			i := slices.IndexFunc(all.Members, func(o Member) bool { return o.Tier == m.Tier && o.ID == m.ID })
			if i < 0 {
				t.Fatalf("a lower tier took %s/%s away", m.Tier, m.ID)
			}
			for _, u := range rules() {
				if u.stated(&m.Facts) && !u.equal(&m.Facts, &all.Members[i].Facts) {
					t.Fatalf("a lower tier changed %s of %s from %s to %s", u.field, m.ID, u.text(&m.Facts), u.text(&all.Members[i].Facts))
				}
			}
			for _, w := range m.Endpoints {
				if !slices.ContainsFunc(all.Members[i].Endpoints, func(o member.Endpoint) bool { return o == w }) {
					t.Fatalf("a lower tier changed the endpoint %v of %s", w.Addr, m.ID)
				}
			}
		}
		for _, c := range alone.Conflicts {
			if !conflictsOf(all)[c.name()] {
				t.Fatalf("a lower tier hid the conflict %+v", c)
			}
		}
	})
}

// TestSourceTakesItsFactsAlong: without a source nothing is of it any more, and
// what others state of members that it never spoke of is as it was.
func TestSourceTakesItsFactsAlong(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base := []Said{native(member.Facts{ID: "a", Node: "na", Key: key(41), OS: "o"}, 1), from(TierStatic, member.Facts{ID: "s", Node: "ns", Key: key(42)})}
		gone := Source{Tier: TierKubernetes, Name: "gone"}
		more := rapid.SliceOfN(anySaid(), 0, 6).Draw(t, "more")
		for i := range more {
			more[i].Source = gone
		}
		with, without := Merge(now(), me(), slices.Concat(base, more), Rules{}), Merge(now(), me(), base, Rules{})
		for _, m := range with.Members {
			m.Endpoints, m.Origins = nil, nil // their sources are counted apart
			if !slices.ContainsFunc(m.Entries, func(e Entry) bool { return e.Source == gone }) {
				if !slices.ContainsFunc(without.Members, func(o Member) bool { o.Endpoints, o.Origins = nil, nil; return reflect.DeepEqual(o, m) }) {
					t.Fatalf("%s differs without a source that never spoke of it", m.ID)
				}
			}
		}
		if len(without.Members) != 2 {
			t.Fatalf("%d members are left of two", len(without.Members))
		}
	})
}
