// SPDX-License-Identifier: Apache-2.0

package roster

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tombolo-io/tombolo/internal/base/member"
)

// TestClaimAcrossTiers: what a node known by a lower tier alone has had, its key and its
// names, is not taken by who comes later in a higher one; the node itself is linked.
func TestClaimAcrossTiers(t *testing.T) {
	six := netip.MustParseAddr("fd00::1")
	v := Facts{ID: "v", Node: "v", Nodename: "v", Key: key(1), Overlay6: six, Ranges: ranges("10.0.1.0/24"), Endpoints: at(KindOwn, "192.0.2.1:1")}
	kube, older := from(TierKubernetes, v), from(TierOlder, v)
	older.First = in(-9)
	claim := func(minutes int, proven bool, change func(*Facts)) Said {
		f := Facts{ID: "z", Node: "z", Key: key(1), Ranges: ranges("10.9.0.0/24"), Endpoints: at(KindOwn, "203.0.113.6:1")}
		change(&f)
		return known(minutes, f, 3, proven)
	}
	static := from(TierStatic, Facts{ID: "s", Node: "z", Key: key(1)})
	const thief, tried = "z 1 z 10.9.0.0/24 203.0.113.6:1/own 192.0.2.1:1/own\n", "v 1 v 10.0.1.0/24 192.0.2.1:1/own 203.0.113.6:1/own\n"
	const linked = "z 1 v 10.9.0.0/24 203.0.113.6:1/own 192.0.2.1:1/own\n"
	const alone = "v 1 v 10.0.1.0/24 192.0.2.1:1/own\n"
	for _, c := range []struct {
		name   string
		claim  Said
		others []Said
		want   string // %s: the lower tier
	}{
		{"its key, under another name", claim(1, false, func(*Facts) {}), nil, tried + "! publicKey %s/v over native/z\n"},
		{"its key and name, with another address", claim(1, false, func(f *Facts) { f.Node, f.Overlay6 = "v", six.Next() }), nil, tried + "! publicKey %s/v over native/z\n"},
		{"its key, proven", claim(1, true, func(*Facts) {}), nil, thief},
		{"its key, which a file gives the other", claim(1, false, func(*Facts) {}), []Said{static}, "s 1 z 10.9.0.0/24 203.0.113.6:1/own 192.0.2.1:1/own\n"},
		{"its key and name: itself", claim(1, false, func(f *Facts) { f.Node = "v" }), nil, linked},
		{"its key, name and address: itself", claim(1, false, func(f *Facts) { f.Node, f.Overlay6 = "v", six }), nil, linked},
		{"its key and names: itself", claim(1, false, func(f *Facts) { f.Node, f.Nodename = "v", "v" }), nil, linked},
		{"its key and one name, with another one", claim(1, false, func(f *Facts) { f.Nodename = "v" }), nil, tried + "! publicKey %s/v over native/z\n"},
		{"its name in Kubernetes, with a key of one's own", claim(1, true, func(f *Facts) { f.Nodename, f.Key = "v", key(7) }), nil,
			alone + "z 7 z 10.9.0.0/24 203.0.113.6:1/own\n! nodename %s/v over native/z\n"},
		{"its name, without a key", claim(1, false, func(f *Facts) { f.Node, f.Key = "v", member.Key{} }), nil,
			"z 0  10.9.0.0/24 203.0.113.6:1/own\n" + alone + "! node %s/v over native/z\n"},
		{"its names, which a file gives the other", claim(1, false, func(f *Facts) { f.Node, f.Key = "v", key(7) }), []Said{from(TierStatic, Facts{ID: "s", Node: "v", Key: key(7)})},
			"s 7 v 10.9.0.0/24 203.0.113.6:1/own\n! publicKey static/s over %s/v\n"},
	} {
		for tier, lower := range map[string]Said{"kubernetes": kube, "older": older} {
			said := append([]Said{lower, c.claim}, c.others...)
			want := strings.ReplaceAll(c.want, "%s", tier)
			for range 2 {
				if got := show(Merge(now(), me(), said, Rules{})); got != want {
					t.Errorf("%s, %s:\ngot\n%swant\n%s", tier, c.name, got, want)
				}
				slices.Reverse(said)
			}
		}
	}
	late := older
	late.First = in(-1)
	if got := show(Merge(now(), me(), []Said{late, claim(9, false, func(*Facts) {})}, Rules{})); got != thief {
		t.Errorf("known after the higher tier's:\n%s", got)
	}
}

// TestKubernetesHoldsWhatItGuards: a node may write what it likes into its own object, so
// that the name of another node is not its own for having written it there.
func TestKubernetesHoldsWhatItGuards(t *testing.T) {
	e := from(TierKubernetes, Facts{ID: "e", Nodename: "e", Node: "w", Key: key(5)})
	w := known(9, Facts{ID: "w", Node: "w", Key: key(3)}, 1, false)
	r := Merge(now(), me(), []Said{e, w}, Rules{})
	if got, want := show(r), "e 5 \nw 3 w\n! node native/w over kubernetes/e\n"; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	// Its key is taken by nobody who names it in an object of his own, beside the node's.
	e.Facts.Key, e.Facts.Node = key(3), ""
	own := from(TierKubernetes, Facts{ID: "w", Nodename: "w", Node: "w", Key: key(3), Ranges: ranges("10.0.3.0/24")})
	r = Merge(now(), me(), []Said{e, own, w}, Rules{})
	if len(r.Members) != 1 || r.Members[0].ID != "w" || r.Members[0].Node != "w" {
		t.Errorf("%s", show(r))
	}
}

// TestRivalsOfAHigherTierDisplaceNoPlaces: nor do those of who claims a key there.
func TestRivalsOfAHigherTierDisplaceNoPlaces(t *testing.T) {
	v := from(TierKubernetes, Facts{ID: "v", Nodename: "v", Key: key(1), Endpoints: at(KindMapped, "192.0.2.1:1", "192.0.2.2:1")})
	z := known(1, Facts{ID: "z", Node: "z", Key: key(1), Endpoints: at(KindOwn, "203.0.113.6:1", "203.0.113.6:2", "203.0.113.6:3")}, 1, false)
	r := Merge(now(), me(), []Said{v, z}, Rules{Endpoints: 3})
	if got, want := show(r), "v 1  192.0.2.1:1/mapped 192.0.2.2:1/mapped 203.0.113.6:1/own\n! publicKey kubernetes/v over native/z\n"; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// TestStaleYields: of a node that was installed anew while no service was there, what it
// was before counts no more once another source tells of it with its new key.
func TestStaleYields(t *testing.T) {
	six := netip.MustParseAddr("fd00::1")
	was := known(9000, Facts{ID: "old", Node: "na", Nodename: "na", Key: key(1), Overlay6: six, Ranges: ranges("10.0.1.0/24")}, 5, true)
	was.Until, was.Stale, was.Held = in(-60), true, in(23*60)
	is := Facts{ID: "na", Node: "na", Nodename: "na", Key: key(2), Overlay6: six, Ranges: ranges("10.0.2.0/24")}
	at := func(tier Tier, minutes int) Said {
		s := from(tier, is)
		s.First = in(minutes)
		return s
	}
	live := was
	live.Stale, live.Until, live.Held = false, in(5), now().AddDate(-9, 0, 0)
	for _, c := range []struct {
		name     string
		was, now Said
		want     string
		six      bool
	}{
		{"the older protocol", was, at(TierOlder, -5), "na 2 na 10.0.2.0/24\n! node older/na over native/old\n", true},
		{"an object of Kubernetes", was, from(TierKubernetes, is), "na 2 na 10.0.2.0/24\n! node kubernetes/na over native/old\n", true},
		{"heard while the lease ran", was, at(TierOlder, -70), "old 1 na 10.0.1.0/24\n! publicKey native/old over older/na\n", true},
		{"the lease runs", live, at(TierOlder, -5), "old 1 na 10.0.1.0/24\n! publicKey native/old over older/na\n", true},
	} {
		said := []Said{c.was, c.now}
		for range 2 {
			r := Merge(now(), me(), said, Rules{})
			if got := show(r); got != c.want || len(r.Members) != 1 || r.Members[0].Overlay6 != six {
				t.Errorf("%s:\ngot\n%swant\n%s", c.name, got, c.want)
			}
			slices.Reverse(said)
		}
	}
	stale := from(TierOlder, Facts{ID: "x", Node: "na", Key: key(1)}) // nor against one in a higher tier that came after it
	stale.First, stale.Until, stale.Stale, stale.Held = in(-9000), in(-60), true, in(60)
	if got, want := show(Merge(now(), me(), []Said{stale, known(5, Facts{ID: "b", Node: "na", Key: key(2)}, 1, false)}, Rules{})), "b 2 na\n! publicKey native/b over older/x\n"; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// TestLaterTakesNoKey: whatever is claimed later in the native tier, and not proven, each
// node whose object in Kubernetes has a key is there with it.
func TestLaterTakesNoKey(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		said := rapid.SliceOfN(anySaid(), 0, 6).Draw(t, "said")
		for i := range said {
			said[i].Source.Tier, said[i].First = rapid.SampledFrom([]Tier{TierOlder, TierKubernetes}).Draw(t, "lower"), in(-9)
			said[i].Stale, said[i].Removed = false, false
			if said[i].Source.Tier == TierKubernetes {
				said[i].Facts.Nodename = said[i].Facts.ID // as the API server sees to
			}
		}
		later := rapid.SliceOfN(anySaid(), 0, 6).Draw(t, "later")
		for i := range later {
			later[i].Source.Tier, later[i].First, later[i].Proven, later[i].Removed = TierNative, in(-1), false, false
			later[i].Facts.Nodename = rapid.SampledFrom([]string{"", "i1", "i2", "i3"}).Draw(t, "claims")
		}
		r := Merge(now(), me(), slices.Concat(said, later), Rules{})
		for _, m := range Merge(now(), me(), said, Rules{}).Members {
			if m.Key != (member.Key{}) && m.Tier == TierKubernetes && m.Sources[FieldKey][0].Tier == m.Tier && !slices.ContainsFunc(r.Members, func(o Member) bool {
				return o.Key == m.Key && slices.ContainsFunc(o.Entries, func(e Entry) bool { return e.Source.Tier == m.Tier && e.ID == m.ID })
			}) {
				t.Fatalf("%s lost its key", m.ID)
			}
		}
	})
}
