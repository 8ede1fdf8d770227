// SPDX-License-Identifier: Apache-2.0

package share_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/link/share"
)

// doubting is a cluster of n nodes with gateways, whose names are a, b and so on in the order in which they get the role.
type doubting struct {
	share.Facts
	t     *testing.T
	names map[string]string
	again time.Time
}

func newDoubting(t *testing.T, n, gateways int) *doubting {
	d := &doubting{facts(n), t, map[string]string{}, time.Time{}}
	d.Spec.NetworkType, d.Gateways = v1alpha1.NetworkGateway, n
	for i := range n { // the best of all, then the best of the rest
		one := d.Facts
		one.Gateways, one.Nodes = 1, slices.DeleteFunc(slices.Clone(d.Nodes), func(n share.Node) bool {
			return d.names[n.Name] != ""
		})
		d.names[share.Decide(one).Gateways[0]] = string(rune('a' + i))
	}
	d.Gateways = gateways
	round(&d.Facts)
	return d
}

// cut has packets of nodes pass, as gateways, or not.
func (d *doubting) cut(is bool, nodes string) {
	for i := range d.Nodes {
		if strings.Contains(nodes, d.names[d.Nodes[i].Name]) {
			d.Nodes[i].Cut, d.Nodes[i].Passes = is, !is
		}
	}
}

// reports has gateways report what they reach, and forgets what others reported: they have no tunnels.
//
//	works: the nodes through which packets pass
func (d *doubting) reports(gateways []string, works string) {
	for i := range d.Nodes {
		n := &d.Nodes[i]
		is, passes := slices.Contains(gateways, n.Name), strings.Contains(works, d.names[n.Name])
		n.Cut, n.Passes = is && !passes, is && passes
	}
}

// during lets time pass in which only some nodes reach other clusters, if they are gateways. What a gateway reaches is
// known after 5 s. It gives how often a node got the role, the last time when one did, and who has it at the end.
func (d *doubting) during(span time.Duration, works string) (moves int, last time.Duration, have string) {
	d.t.Helper()
	begin := d.Now
	s := round(&d.Facts)
	var reported []string
	for d.Now.Before(begin.Add(span)) {
		before := s.Gateways
		next := d.Now.Add(5 * time.Second)
		if slices.Equal(reported, before) {
			next = begin.Add(span)
			if !s.Again.IsZero() && s.Again.Before(next) {
				next = s.Again
			}
		}
		if !next.After(d.Now) {
			d.t.Fatalf("it is decided again and again, at last at %v", d.Now.Sub(begin))
		}
		d.Now = next
		round(&d.Facts) // before it is known
		d.reports(before, works)
		reported = before
		s = round(&d.Facts)
		for _, g := range s.Gateways {
			if !slices.Contains(before, g) {
				moves, last = moves+1, d.Now.Sub(begin)
			}
		}
	}
	for _, g := range s.Gateways {
		have += d.names[g]
	}
	return moves, last, have
}

// have requires that the gateways are these after a time, whatever is decided in between.
func (d *doubting) have(what string, after time.Duration, want string) {
	d.t.Helper()
	end := d.Now.Add(after)
	var s share.Shared
	for moves := 0; ; moves++ {
		s = round(&d.Facts)
		if d.again = s.Again; d.again.IsZero() || d.again.After(end) {
			break
		}
		if moves > 100 || d.again.Before(d.Now) {
			d.t.Fatalf("%s: it is decided again and again, at last at %v", what, d.again)
		}
		d.Now = d.again
	}
	d.Now = end
	s = round(&d.Facts)
	var got []string
	for _, g := range s.Gateways {
		got = append(got, d.names[g])
	}
	slices.Sort(got)
	if is := strings.Join(got, ""); is != want {
		d.t.Errorf("%s: after %v they are %q, want %q; in doubt %v", what, after, is, want, s.Doubts)
	}
}

// TestCutOffGateway: a gateway that reaches no other cluster loses its role to one that may, and gets it back last.
func TestCutOffGateway(t *testing.T) {
	d := newDoubting(t, 3, 1)
	d.have("at first", 0, "a")
	d.cut(true, "a")
	d.have("not at once", share.Patience-1, "a")
	d.cut(false, "a")
	d.have("it was for a moment", 1, "a")
	d.cut(true, "a")
	d.have("the time begins anew", share.Patience-1, "a")
	d.have("at its end", 1, "b")
	d.cut(false, "ab") // b reaches others, and a has no tunnels any more
	d.have("it does not come back", time.Hour, "b")
	if len(d.Doubts) > 0 {
		t.Errorf("%v is remembered", d.Doubts)
	}

	d = newDoubting(t, 3, 1)
	d.cut(true, "a")
	d.have("a is cut off", share.Patience, "b")
	ready(&d.Facts, d.called("b"), false)
	d.have("b is not ready", share.Grace, "c")
	ready(&d.Facts, d.called("c"), false)
	d.have("nor is c: there is none but a", share.Grace, "a")
	ready(&d.Facts, d.called("b"), true)
	d.have("b is back, and a cut off still", share.Patience, "b")
}

func (d *doubting) called(name string) string {
	for node, is := range d.names {
		if is == name {
			return node
		}
	}
	d.t.Fatal(name)
	return ""
}

// TestOtherClustersAway: where no gateway reaches anything, all candidates are tried, more and more slowly, and the
// cluster keeps as many gateways as it had.
func TestOtherClustersAway(t *testing.T) {
	d := newDoubting(t, 2, 1)
	d.cut(true, "ab")
	d.have("a is the first one in doubt", share.Patience, "b")
	d.have("b is too, after twice the time, and stays", 2*share.Patience, "b")
	d.have("until a has rested", share.Rest-2*share.Patience-1, "b")
	d.have("which is tried once more: b may never have reached anything", 1, "a")
	d.have("b rests as long as a did", share.Rest-1, "a")
	d.have("and is tried", 1, "b")
	d.have("a rests twice as long now", 2*share.Rest-1, "b")
	d.have("and so on", 1, "a")
	d.cut(false, "a")
	d.have("packets pass", 10*share.Rest, "a")
	if len(d.Doubts) > 0 {
		t.Errorf("%v is remembered", d.Doubts)
	}
	d.cut(true, "a")
	d.have("a is cut off, and b has rested", share.Patience, "b")
	d.have("a rests as for the first time", share.Rest-1, "b")
	d.have("as all of this is another time", 1, "a")

	d = newDoubting(t, 2, 2)
	d.cut(true, "ab")
	d.have("there are no others", 3*share.Rest, "ab")
	d = newDoubting(t, 4, 2)
	d.cut(true, "abcd")
	d.have("one of two", share.Patience, "ac")
	d.have("the other one waits twice as long", 2*share.Patience-1, "ac")
	d.have("and gives way", 1, "cd")
	d.have("of all one stays", 4*share.Patience, "cd")
}

// TestRoleDoesNotFlap: while all other clusters are away each node is tried, and then ever more rarely. Once they are
// back, through whichever node, packets pass again: later by as long as they were away for at most, and by a day. Then
// nothing moves any more.
func TestRoleDoesNotFlap(t *testing.T) {
	for _, c := range []struct{ nodes, gateways int }{{1, 1}, {2, 1}, {3, 1}, {3, 2}, {6, 2}, {100, 2}} {
		d := newDoubting(t, c.nodes, c.gateways)
		soon, _, _ := d.during(6*time.Hour, "")
		day, _, _ := d.during(18*time.Hour, "")
		d.during(24*time.Hour, "")
		third, _, _ := d.during(24*time.Hour, "")
		t.Logf("%d nodes, %d gateways: %d moves in 6 hours, %d in a day, %d in the third one", c.nodes, c.gateways, soon,
			soon+day, third)
		if soon > 4*c.nodes || soon+day > 6*c.nodes || third > c.nodes {
			t.Error("these are too many")
		}
	}
	for _, works := range []string{"a", "b", "c"} {
		for _, away := range []time.Duration{time.Minute, 10 * time.Minute, 45 * time.Minute, 3 * time.Hour, 12 * time.Hour,
			100 * time.Hour} {
			d := newDoubting(t, 3, 1)
			d.during(away, "")
			_, took, have := d.during(48*time.Hour, works)
			t.Logf("only %s reaches others, after %v: %s from %v on", works, away, have, took)
			if most := min(max(away, share.Rest), share.MostRest) + time.Hour; have != works || took > most {
				t.Errorf("only %s reaches others, after %v: %q from %v on", works, away, have, took)
			}
			if len(d.Doubts) > 0 {
				t.Errorf("%v is remembered", d.Doubts)
			}
		}
	}
}
