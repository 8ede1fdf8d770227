// SPDX-License-Identifier: Apache-2.0

package doubled_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/link/doubled"
)

// claim reads a node: CLUSTER.NODE, with "own!" before those of the own cluster, "?" before those of one that is not
// accepted and "*" before those that are marked, the second of its creation, its order, its key, and its addresses.
func claim(text string) (c doubled.Claim) {
	words := strings.Fields(text)
	name, own := strings.CutPrefix(words[0], "own!")
	name, asks := strings.CutPrefix(name, "?")
	name, marked := strings.CutPrefix(name, "*")
	if c.Own, c.Accepted = own, !asks; marked {
		c.Marked = "it lost"
	}
	c.Cluster, c.Node, _ = strings.Cut(name, ".")
	var at int64
	if _, err := fmt.Sscan(words[1]+" "+words[2], &at, &c.Order); err != nil {
		panic(err)
	}
	c.Created, c.Key = time.Unix(at, 0), strings.Trim(words[3], "-")
	for _, a := range words[4:] {
		c.Addresses = append(c.Addresses, netip.MustParseAddr(a))
	}
	return c
}

// found is what is lost, by names.
func found(all []doubled.Claim) string {
	var out []string
	for _, l := range doubled.Find(all) {
		what := "key"
		if l.Address.IsValid() {
			what = l.Address.String()
		}
		why := [...]string{"own", "marked", "accepted", "earlier", "noted", "named"}[l.Why]
		c := all[l.Claim]
		if l.Holder < 0 {
			out = append(out, fmt.Sprintf("%s.%s: %s", c.Cluster, c.Node, why))
			continue
		}
		holder := all[l.Holder]
		out = append(out, fmt.Sprintf("%s.%s loses %s to %s.%s: %s", c.Cluster, c.Node, what, holder.Cluster, holder.Node, why))
	}
	return strings.Join(out, "; ")
}

func TestFind(t *testing.T) {
	for name, c := range map[string]struct {
		all  []string
		want string
	}{
		"nothing":         {nil, ""},
		"all differ":      {[]string{"a.x 1 1 k1 fd00::1", "b.x 2 2 k2 fd00::2"}, ""},
		"without a key":   {[]string{"a.x 1 1 -", "b.x 2 2 -"}, ""},
		"in one cluster":  {[]string{"a.x 1 1 k1 fd00::1", "a.y 2 2 k1 fd00::1"}, ""},
		"a later second":  {[]string{"a.x 2 1 k1", "b.y 1 2 k1"}, "a.x loses key to b.y: earlier"},
		"a later address": {[]string{"a.x 2 1 k1 fd00::1", "b.y 1 2 k2 fd00::1"}, "a.x loses fd00::1 to b.y: earlier"},
		"both": {[]string{"a.x 2 1 k1 fd00::1 100.64.0.1", "b.y 1 2 k1 fd00::1 100.64.0.1"},
			"a.x loses key to b.y: earlier; a.x loses fd00::1 to b.y: earlier; a.x loses 100.64.0.1 to b.y: earlier"},
		"one second, by order":     {[]string{"a.x 1 10 k1", "b.y 1 9 k1"}, "a.x loses key to b.y: earlier"},
		"one second, one noted":    {[]string{"a.x 1 0 k1", "b.y 1 9 k1"}, "a.x loses key to b.y: noted"},
		"not noted, and earlier":   {[]string{"b.x 1 0 k1", "a.y 2 9 k1"}, "a.y loses key to b.x: earlier"},
		"one second, none noted":   {[]string{"b.x 1 0 k1", "a.y 1 0 k1"}, "b.x loses key to a.y: named"},
		"the own, and later":       {[]string{"a.x 1 1 k1", "own!b.y 2 2 k1"}, "a.x loses key to b.y: own"},
		"not accepted, and before": {[]string{"?a.x 1 1 k1", "b.y 2 2 k1"}, "a.x loses key to b.y: accepted"},
		"neither is accepted":      {[]string{"?a.x 1 1 k1", "?b.y 2 2 k1"}, "b.y loses key to a.x: earlier"},
		"the own, not accepted":    {[]string{"a.x 1 1 k1", "own!?b.y 2 2 k1"}, "a.x loses key to b.y: own"},
		"what does not count keeps nobody out": {[]string{"a.x 1 1 k1", "b.y 2 2 k1 fd00::7", "c.z 3 3 k3 fd00::7"},
			"b.y loses key to a.x: earlier"},
		"marked, and before":       {[]string{"*a.x 1 1 k1", "b.y 2 2 k2", "c.z 3 3 k1"}, "a.x loses key to c.z: marked"},
		"marked, and alone":        {[]string{"*a.x 1 1 k1", "b.y 2 2 k2"}, "a.x: marked"},
		"both are marked":          {[]string{"*a.x 1 1 k1", "*b.y 2 2 k1"}, "a.x: marked; b.y: marked"},
		"marked against one asked": {[]string{"*a.x 1 1 k1", "?b.y 2 2 k1"}, "a.x loses key to b.y: marked"},
		"marked, of the own":       {[]string{"own!*a.x 2 2 k1", "b.y 1 1 k1"}, "b.y loses key to a.x: own"},
	} {
		var all []doubled.Claim
		for _, text := range c.all {
			all = append(all, claim(text))
		}
		for range 2 {
			if got := found(all); got != c.want {
				t.Errorf("%s: %s, want %s", name, got, c.want)
			}
			slices.Reverse(all) // in which order they are given does not matter
		}
	}
}

// TestLater: whoever counts, it is said whether the one that does not is known to have come later.
func TestLater(t *testing.T) {
	for name, c := range map[string]struct {
		holder, other string
		want          bool
	}{
		"a later second":               {"a.x 1 2 k1", "b.y 2 1 k1", true},
		"the order":                    {"a.x 1 1 k1", "b.y 1 2 k1", true},
		"its order is not noted":       {"a.x 1 1 k1", "b.y 1 0 k1", false},
		"no order is noted":            {"a.x 1 0 k1", "b.y 1 0 k1", false},
		"not accepted, before":         {"a.x 2 2 k1", "?b.y 1 1 k1", false},
		"not accepted, before, order":  {"a.x 1 2 k1", "?b.y 1 1 k1", false},
		"not accepted, and later":      {"a.x 1 1 k1", "?b.y 2 2 k1", true},
		"not accepted, the other none": {"a.x 1 0 k1", "?b.y 1 2 k1", false},
		"before one of the own":        {"own!a.x 2 2 k1", "b.y 1 1 k1", false},
		"marked, and before":           {"a.x 2 2 k1", "*b.y 1 1 k1", false},
	} {
		got := doubled.Find([]doubled.Claim{claim(c.other), claim(c.holder)})
		if len(got) != 1 || got[0].Claim != 0 || got[0].Later != c.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestMadeAnew: who claims what is another one's has nothing of it when that one is made anew, nor before.
func TestMadeAnew(t *testing.T) {
	victim, waits, anew := claim("a.x 1 1 k1 fd00::1"), claim("b.y 2 2 k2 fd00::1"), claim("a.x 3 3 k3 fd00::1")
	lost := doubled.Find([]doubled.Claim{victim, waits})
	if len(lost) != 1 || lost[0].Claim != 1 || !lost[0].Later {
		t.Fatalf("%+v", lost)
	}
	waits.Marked = "it lost"
	if got := found([]doubled.Claim{waits}); got != "b.y: marked" {
		t.Errorf("while the other is away: %s", got)
	}
	if got := found([]doubled.Claim{waits, anew}); got != "b.y loses fd00::1 to a.x: marked" {
		t.Errorf("when it is there again: %s", got)
	}
}

// TestLaterClaims: in which order claims are given changes nothing, and one that comes later takes nothing from what is
// there, whatever it claims and whatever its cluster is called.
func TestLaterClaims(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var all []doubled.Claim
		for i := range 2 + r.IntN(7) {
			c := claim(fmt.Sprintf("c%d.n%d 1 %d k%d fd00::%d 100.64.0.%d", r.IntN(4), i, 1+i, r.IntN(4), r.IntN(4), r.IntN(4)))
			c.Own, c.Accepted = c.Cluster == "c3", c.Cluster != "c2"
			all = append(all, c)
		}
		want := found(all)
		r.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
		if got := found(all); got != want {
			t.Fatalf("%+v: %s, and in another order %s", all, got, want)
		}
		later := claim(fmt.Sprintf("a.n 1 %d k%d fd00::%d", 100*r.IntN(2), r.IntN(4), r.IntN(4)))
		later.Accepted = !slices.ContainsFunc(all, func(c doubled.Claim) bool { return !c.Accepted })
		if r.IntN(3) == 0 {
			later.Marked = "it lost"
		}
		if got := found(append(all, later)); !strings.HasPrefix(got, want) || strings.Contains(got, "to a.n") {
			t.Fatalf("%+v, and then %+v: %s, before that %s", all, later, got, want)
		}
	}
}
