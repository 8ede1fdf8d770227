// SPDX-License-Identifier: Apache-2.0

package roster

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/member"
)

// crowd is what three sources say of n members, with a conflict for each tenth.
func crowd(n int) []Said {
	var out []Said
	for i := range n {
		f := member.Facts{ID: fmt.Sprintf("i%06d", i), Node: fmt.Sprintf("n%06d", i), Nodename: fmt.Sprintf("k%06d", i), Key: member.Key{1, byte(i >> 16), byte(i >> 8), byte(i)},
			Overlay4:  netip.AddrFrom4([4]byte{100, 65 + byte(i>>16), byte(i >> 8), byte(i)}),
			Endpoints: []member.Endpoint{{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)}), 1), Kind: member.KindOwn}}}
		out = append(out, native(f, 1))
		k := f
		k.ID = f.Nodename
		if i%10 == 0 {
			k.Key = member.Key{2, byte(i >> 16), byte(i >> 8), byte(i)} // which the native tier refuses
		}
		out = append(out, Said{Source: Source{Tier: TierKubernetes, Name: "members"}, Facts: k, Version: 1, Until: in(15)}, from(TierOlder, f))
	}
	return out
}

// steps runs fn and counts what it does n times as much of: allocations, which do not depend on the machine's speed.
func steps(t *testing.T, fn func()) float64 {
	t.Helper()
	return testing.AllocsPerRun(1, fn)
}

// TestMergeGrowsWithItsInput: ten times as many members are ten times as much to merge and to compare, not a hundred.
func TestMergeGrowsWithItsInput(t *testing.T) {
	few, many := crowd(200), crowd(2000)
	a, b := steps(t, func() { Merge(now(), me(), few, Rules{}) }), steps(t, func() { Merge(now(), me(), many, Rules{}) })
	if b > 12*a {
		t.Errorf("2,000 members take %.0f allocations, 200 take %.0f", b, a)
	}
	r := Merge(now(), me(), many, Rules{})
	if len(r.Members) != 2000 || len(r.Conflicts) != 200 {
		t.Fatalf("%d members, %d conflicts", len(r.Members), len(r.Conflicts))
	}
}

// TestEventsOfManyMembers: of two results each member is looked at once, and one change among many is one event.
func TestEventsOfManyMembers(t *testing.T) {
	before := Merge(now(), me(), crowd(3000), Rules{})
	said := crowd(3000)
	said[3].Facts.Hostname = "another"                                            // n000001
	said = slices.Delete(said, 3*2998, 3*2999)                                    // n002998
	said = append(said, native(member.Facts{ID: "z", Node: "z", Key: key(5)}, 1)) // z
	after := Merge(now(), me(), said, Rules{})
	got := ""
	for _, e := range Events(before, after) {
		got += fmt.Sprintf("%s %s %v\n", e.What, e.Member.Node, e.Fields)
	}
	if want := "changed n000001 [hostname]\njoined z []\nleft n002998 []\n"; got != want {
		t.Errorf("what happened:\n%s", got)
	}
	x := indexOf(before.Members)
	for i := range before.Members {
		if x.take(&before.Members[i]) != &before.Members[i] {
			t.Fatalf("%s is another one", before.Members[i].Node)
		}
	}
	if m := x.take(&before.Members[7]); m != nil {
		t.Errorf("%s is taken twice", m.Node)
	}
}

// TestLongSuccession: of a chain of any length the last one lives, of a ring the smallest, and each link is looked at once.
func TestLongSuccession(t *testing.T) {
	const n = 50_000
	next := map[string]string{}
	for i := range n {
		next[fmt.Sprintf("c%06d", n-i)] = fmt.Sprintf("c%06d", n-i-1) // downwards, which was the dear way
		next[fmt.Sprintf("r%06d", i)] = fmt.Sprintf("r%06d", (i+1)%n)
	}
	next["tail"] = "r000009" // leads into the ring, and is none of it
	if got := leaders(next); len(got) != 1 || !got["r000000"] {
		t.Errorf("%d lead, r000000: %v", len(got), got["r000000"])
	}
}

// TestSeenAtManyPlaces: what a crowd has seen of one member is bounded, and each place is looked up once.
func TestSeenAtManyPlaces(t *testing.T) {
	said := crowd(2)
	seen := native(member.Facts{ID: "o", Node: "o", Key: key(7)}, 1)
	for i := range 40_000 {
		seen.Facts.Observed = append(seen.Facts.Observed, member.Observation{Key: said[0].Facts.Key, Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 51, byte(i >> 8), byte(i)}), 9)})
	}
	r := Merge(now(), me(), append(said, seen), Rules{Endpoints: math.MaxInt})
	i := slices.IndexFunc(r.Members, func(m Member) bool { return m.Node == "n000000" })
	if n := len(r.Members[i].Endpoints); n != 40_001 {
		t.Errorf("%d places", n)
	}
}

func BenchmarkMerge(b *testing.B) {
	for _, n := range []int{100, 10_000} {
		said := crowd(n)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Merge(now(), me(), said, Rules{})
			}
		})
	}
}

func BenchmarkEvents(b *testing.B) {
	for _, n := range []int{100, 10_000} {
		said := crowd(n)
		before := Merge(now(), me(), said, Rules{})
		said[0].Facts.Hostname = "another"
		after := Merge(now(), me(), said, Rules{})
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Events(before, after)
			}
		})
	}
}
