// SPDX-License-Identifier: Apache-2.0

package accept_test

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tombolo-io/tombolo/internal/link/accept"
)

func draw(t *rapid.T, name string) accept.Cluster {
	small := func(label string) string {
		bits := rapid.IntRange(12, 16).Draw(t, label+" bits")
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(rapid.IntRange(0, 31).Draw(t, label))}), bits).Masked().String()
	}
	var words []string
	for i := range rapid.IntRange(0, 2).Draw(t, "pods") {
		p := small("pod")
		words = append(words, p)
		if rapid.Bool().Draw(t, "mapped") {
			_, bits, _ := strings.Cut(p, "/")
			words = append(words, fmt.Sprintf("%s=240.%d.0.0/%s", p, 16*rapid.IntRange(0, 7).Draw(t, "to"), bits))
		}
		if rapid.Bool().Draw(t, "node") {
			words = append(words, fmt.Sprintf("n%d@%s", i, small("node range")))
		}
	}
	return cluster(name, rapid.IntRange(1, 3).Draw(t, "age"), strings.Join(words, " "))
}

// seen are the ranges by which others reach a cluster, and its own ones.
func seen(c accept.Cluster) (outside, own []netip.Prefix) {
	own = slices.Concat(c.Pods, c.Services)
	for _, n := range c.Nodes {
		own = append(own, n.Pods...)
	}
	for _, p := range own {
		best := -1
		for i, m := range c.Mapped {
			if _, ok := m.Out(p); ok && (best < 0 || m.There.Bits() > c.Mapped[best].There.Bits()) {
				best = i
			}
		}
		if best >= 0 {
			p, _ = c.Mapped[best].Out(p)
		}
		outside = append(outside, p)
	}
	return outside, own
}

func meet(a, b []netip.Prefix) bool {
	return slices.ContainsFunc(a, func(p netip.Prefix) bool { return slices.ContainsFunc(b, p.Overlaps) })
}

func noted(in []accept.Cluster, out []accept.Verdict) []accept.Cluster {
	next := slices.Clone(in)
	for i := range next {
		next[i].Accepted, next[i].Held, next[i].Was = out[i].Accepted, out[i].Holds, out[i].Mapped
	}
	return next
}

// TestAnyFederation: whatever clusters there are, no two that are accepted meet, the order does not matter, those that
// were accepted stay when others come or change, and after a few rounds nothing changes.
func TestAnyFederation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var in []accept.Cluster
		for i := range rapid.IntRange(1, 5).Draw(t, "clusters") {
			in = append(in, draw(t, string(rune('a'+i))))
		}
		out := accept.Decide(in)
		for round := 0; ; round++ {
			apart(t, in, out)
			order := rapid.Permutation(slices.Clone(in)).Draw(t, "order")
			for i, v := range accept.Decide(order) {
				k := slices.IndexFunc(in, func(c accept.Cluster) bool { return c.Name == order[i].Name })
				if !reflect.DeepEqual(v, out[k]) {
					t.Fatalf("in another order %+v, not %+v", v, out[k])
				}
			}
			next := noted(in, out)
			again := accept.Decide(next)
			same := slices.EqualFunc(out, again, func(a, b accept.Verdict) bool { return a.Accepted == b.Accepted })
			if in, out = next, again; same {
				break
			}
			if round == len(in) {
				t.Fatalf("it does not end: %+v", out)
			}
		}
		// One cluster says something else, and a new one, older than all, says anything.
		changed := slices.Clone(in)
		i := rapid.IntRange(0, len(in)-1).Draw(t, "which")
		changed[i] = draw(t, in[i].Name)
		changed[i].Accepted, changed[i].Held, changed[i].Was = in[i].Accepted, in[i].Held, in[i].Was
		changed[i].Created = in[i].Created
		old := draw(t, "z")
		old.Created = time.Unix(1, 0)
		changed = append(changed, old)
		after := accept.Decide(changed)
		apart(t, changed, after)
		for k := range in {
			if k != i && out[k].Accepted && !after[k].Accepted {
				t.Fatalf("%s was accepted, and is refused: %s", in[k].Name, after[k].Why)
			}
		}
	})
}

// apart: what is accepted does not meet, and what is refused for another cluster names both.
func apart(t *rapid.T, in []accept.Cluster, out []accept.Verdict) {
	for i := range in {
		outside, own := seen(in[i])
		for k := range in {
			theirs, _ := seen(in[k])
			if i != k && out[i].Accepted && out[k].Accepted && (meet(outside, theirs) || meet(own, theirs)) {
				t.Fatalf("%+v and %+v are accepted", in[i], in[k])
			}
		}
		if v := out[i]; v.Reason == accept.Overlap && !(strings.Contains(v.Why, "of cluster "+in[i].Name+" ") &&
			strings.Count(v.Why, " of cluster ") >= 2) {
			t.Fatalf("%s: %s", in[i].Name, v.Why)
		}
	}
}

// BenchmarkDecide: 100 clusters with 100 nodes each.
func BenchmarkDecide(b *testing.B) {
	var in []accept.Cluster
	for i := range 100 {
		words := []string{fmt.Sprintf("10.%d.0.0/16", i), fmt.Sprintf("S:10.%d.0.0/16", 100+i)}
		for k := range 100 {
			words = append(words, fmt.Sprintf("n%d@10.%d.%d.0/24,fd7f::%d:%d,100.112.%d.%d,key%d.%d", k, i, k, i, k, i, k, i, k))
		}
		in = append(in, cluster(fmt.Sprintf("c%d", i), i, strings.Join(words, " ")))
	}
	for b.Loop() {
		accept.Decide(in)
	}
}
