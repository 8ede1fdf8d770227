// SPDX-License-Identifier: Apache-2.0

package share_test

import (
	"fmt"
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
			d.Nodes[i].Cut = is
		}
	}
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
	d.cut(false, "a") // it has no tunnels any more
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
	d.have("which is tried once more", 1, "a")
	d.cut(false, "a")
	d.have("and packets pass", 10*share.Rest, "a")

	d = newDoubting(t, 2, 2)
	d.cut(true, "ab")
	d.have("there are no others", 3*share.Rest, "ab")
	d = newDoubting(t, 4, 2)
	d.cut(true, "abcd")
	d.have("one of two", share.Patience, "ac")
	d.have("the other one waits twice as long", 2*share.Patience-1, "ac")
	d.have("and gives way", 1, "cd")
	d.have("of all one stays", 4*share.Patience, "cd")

	d = newDoubting(t, 100, 1)
	var all []string
	for _, n := range d.names {
		all = append(all, n)
	}
	d.cut(true, strings.Join(all, ""))
	moves, last, end := 0, "", d.Now.Add(24*time.Hour)
	for d.Now.Before(end) {
		s := round(&d.Facts)
		if got := fmt.Sprint(s.Gateways); got != last {
			moves, last = moves+1, got
		}
		if len(s.Gateways) != 1 || s.Again.IsZero() || !s.Again.After(d.Now) {
			t.Fatalf("%v, again at %v", s.Gateways, s.Again)
		}
		d.Now = s.Again
	}
	if moves < 20 || moves > 300 {
		t.Errorf("the role moved %d times in a day", moves)
	}
	t.Logf("of 100 nodes that reach nothing, the role moves %d times in a day", moves)
}
