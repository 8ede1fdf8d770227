// SPDX-License-Identifier: Apache-2.0

//go:build lab

package mesh

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/test/lab"
	"github.com/tombolo-io/tombolo/test/lab/labtest"
)

// stays is how long a pair that has no direct way is looked at: all candidates have
// been tried six times by then, and once more.
const stays = 6 * time.Second

// facets are what of a pair must be seen at least once: each kind direct and relayed,
// if it ever is, every way to be near, and each reason that theory has.
func facets(p lab.Pair) []string {
	e := p.Theory()
	list := []string{fmt.Sprintf("%s, direct %v", p.A.Name, e.Direct), fmt.Sprintf("%s, direct %v", p.B.Name, e.Direct), "near: " + p.Near.String()}
	return append(list, strings.Split(e.Why, "; ")...)
}

// few takes pairs until every facet of all of them is there, always the pair next that
// shows most that is new.
func few(pairs []lab.Pair) []lab.Pair {
	seen := map[string]bool{}
	var taken []lab.Pair
	for {
		var best lab.Pair
		most := 0
		for _, p := range pairs {
			fresh := map[string]bool{}
			for _, f := range facets(p) {
				if !seen[f] {
					fresh[f] = true
				}
			}
			if len(fresh) > most {
				best, most = p, len(fresh)
			}
		}
		if most == 0 {
			return taken
		}
		for _, f := range facets(best) {
			seen[f] = true
		}
		taken = append(taken, best)
	}
}

// pairEnv names the pairs to play, for who looks into one.
const pairEnv = "TOMBOLO_LAB_PAIR"

// pairsToPlay are all of them in make lab, and otherwise as few as show everything.
func pairsToPlay() []lab.Pair {
	if only := os.Getenv(pairEnv); only != "" {
		return slices.DeleteFunc(lab.Pairs(), func(p lab.Pair) bool { return !slices.Contains(strings.Split(only, ","), p.String()) })
	}
	pairs := labtest.Pairs()
	if len(pairs) == len(lab.Pairs()) {
		return pairs
	}
	return few(lab.Pairs())
}

func TestFewPairsShowEverything(t *testing.T) {
	all, part := map[string]bool{}, map[string]bool{}
	for _, p := range lab.Pairs() {
		for _, f := range facets(p) {
			all[f] = true
		}
	}
	taken := few(lab.Pairs())
	for _, p := range taken {
		for _, f := range facets(p) {
			part[f] = true
		}
	}
	for f := range all {
		if !part[f] {
			t.Errorf("no pair shows %q", f)
		}
	}
	t.Logf("%d of %d pairs show all of %d facets", len(taken), len(lab.Pairs()), len(all))
}

// TestMeshGrid plays every pair of kinds of places with the program itself: whether the
// nodes come to be direct is what theory says, packets pass in any case and from the
// beginning, and nobody on the way can read them.
//
// Pairs are worlds of their own, and mostly wait: some are played at a time.
func TestMeshGrid(t *testing.T) {
	pairs := pairsToPlay()
	t.Run("pairs", func(t *testing.T) {
		for _, pair := range pairs {
			t.Run(pair.String(), func(t *testing.T) {
				t.Parallel()
				t.Attr("figure", playPair(t, pair)) // the suite shows it
			})
		}
	})
	if len(pairs) == 0 {
		t.Fatalf("no pair was played; %s names none that there is", pairEnv)
	}
}

// playPair gives what came of a pair, with times from the moment at which both nodes are up.
func playPair(t *testing.T, pair lab.Pair) string {
	r := ofPair(t, pair)
	theory := pair.Theory()
	a, b := r.node(r.grid.A, settings{}), r.node(r.grid.B, settings{})
	a.begin()
	b.begin()
	a.awaitUp()
	b.awaitUp()
	begin := time.Now()
	floods := []*lab.Flood{a.flood(b.overlay4), a.flood(b.overlay6), b.flood(a.overlay4), b.flood(a.overlay6)}
	requireOverlay(t, a, b)

	way := "-"
	if theory.Direct {
		way = max(0, awaitDirect(a, b).Sub(begin)).Round(time.Millisecond).String()
		requireWay(a, b, theory.Families)
		requireWay(b, a, theory.Families)
	}
	var first []string
	for _, f := range floods {
		first = append(first, r.awaitAfter(f, begin).Round(time.Millisecond).String())
	}
	reason := ""
	if !theory.Direct {
		requireRelayed(a, b)
		reason = "; " + theory.Why
	}
	for _, f := range floods {
		f.End()
	}
	if pair.A.MTU != 0 || pair.B.MTU != 0 {
		requireBigPackets(t, a, b, theory)
	}
	for _, n := range []*node{a, b} {
		requireProxyUsed(t, n)
	}
	r.requireNoClearText(a, b)
	a.stop()
	b.stop()
	return fmt.Sprintf("%-45s first answer a>b %s, %s, b>a %s, %s (v4, v6 each); direct after %s%s",
		pair, first[0], first[1], first[2], first[3], way, reason)
}

// requireOverlay checks that the nodes' addresses are theirs alone, and that each says
// of the other what that says of itself.
func requireOverlay(t *testing.T, a, b *node) {
	t.Helper()
	if a.overlay4 == b.overlay4 || a.overlay6 == b.overlay6 {
		t.Errorf("both nodes have %s or %s", a.overlay4, a.overlay6)
	}
	for _, n := range []*node{a, b} {
		if !n.overlay4.Is4() || !netip.MustParsePrefix("100.112.0.0/12").Contains(n.overlay4) || n.overlay6.As16()[0] != 0xfd {
			t.Errorf("%s has %s and %s", n.name, n.overlay4, n.overlay6)
		}
	}
	a.rig.eventually("both nodes know each other", nil, func() error {
		for _, of := range [][2]*node{{a, b}, {b, a}} {
			p, err := of[0].peer(of[1])
			if err != nil {
				return err
			}
			four, _ := addrOf(p.Overlay4)
			six, _ := addrOf(p.Overlay6)
			if four != of[1].overlay4 || six != of[1].overlay6 {
				return fmt.Errorf("%s has %s as %s and %s", of[0].name, of[1].name, four, six)
			}
		}
		return nil
	})
}

// requireRelayed: no direct way has been found after a while, and the relay is the way. It may be down for a moment: a
// node that stands still does not answer.
func requireRelayed(a, b *node) {
	t := a.rig.t
	t.Helper()
	awaitState(a, b, relayed)
	for end := time.Now().Add(stays); time.Now().Before(end); time.Sleep(500 * time.Millisecond) {
		for _, of := range [][2]*node{{a, b}, {b, a}} {
			p, err := of[0].peer(of[1])
			if err != nil {
				t.Fatal(err)
			}
			if p.State == direct || p.Path != "" && !strings.HasPrefix(p.Path, "relay ") {
				t.Fatalf("%s has %s %s by %q (%s), which theory says cannot be", of[0].name, of[1].name, p.State, p.Path, p.Why)
			}
		}
	}
	for _, of := range [][2]*node{{a, b}, {b, a}} {
		if p := awaitState(of[0], of[1], relayed); !strings.HasPrefix(p.Path, "relay ") {
			t.Errorf("%s has %s relayed by %q", of[0].name, of[1].name, p.Path)
		}
	}
}

// requireBigPackets: much passes in both directions although the way is narrow and
// nobody tells, and the nodes know how narrow it is.
func requireBigPackets(t *testing.T, a, b *node, theory lab.Expectation) {
	t.Helper()
	const size = 1 << 20
	for _, way := range []struct {
		from, to *node
		addr     netip.Addr
	}{{a, b, b.overlay4}, {b, a, a.overlay4}, {a, b, b.overlay6}, {b, a, a.overlay6}} {
		if err := transfer(way.from, way.to, way.addr, size); err != nil {
			t.Errorf("a transfer over a narrow way: %v", err)
		}
	}
	if !theory.Direct || theory.MTU >= 1500 {
		return
	}
	a.rig.eventually("both nodes know that the way is narrow", nil, func() error {
		for _, of := range [][2]*node{{a, b}, {b, a}} {
			if p, err := of[0].peer(of[1]); err != nil || p.MTU == 0 || p.MTU > theory.MTU {
				return fmt.Errorf("%s says %d of a way of %d (%v)", of[0].name, p.MTU, theory.MTU, err)
			}
		}
		return nil
	})
}

// requireProxyUsed: where nothing else goes out, it was by the proxy.
func requireProxyUsed(t *testing.T, n *node) {
	t.Helper()
	if n.place.Proxy == nil {
		return
	}
	if made, refused := n.place.Proxy.Tunnels(); made < 2 || refused != 0 {
		t.Errorf("the proxy of %s made %d connections and refused %d; want those to hub and discovery", n.name, made, refused)
	}
}
