// SPDX-License-Identifier: Apache-2.0

package accept_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/link/accept"
	"github.com/tombolo-io/tombolo/internal/route/mapping"
)

func ranges(text string) (out []netip.Prefix) {
	for _, f := range strings.Fields(text) {
		out = append(out, netip.MustParsePrefix(f))
	}
	return out
}

// cluster reads words: pods are ranges, services S:RANGE, mappings RANGE=RANGE, nodes NAME@RANGE, what is held H:RANGE,
// what was mapped W:RANGE. Its age is in days.
func cluster(name string, age int, words string) accept.Cluster {
	c := accept.Cluster{Name: name, Created: time.Unix(2e9, 0).AddDate(0, 0, -age)}
	for _, w := range strings.Fields(words) {
		there, here, isMap := strings.Cut(w, "=")
		node, at, isNode := strings.Cut(w, "@")
		switch {
		case isMap:
			c.Mapped = append(c.Mapped, mapping.Range{Cluster: name, There: netip.MustParsePrefix(there),
				Here: netip.MustParsePrefix(here)})
		case isNode:
			n := accept.Node{Name: node, Created: c.Created}
			for _, v := range strings.Split(at, ",") {
				if p, err := netip.ParsePrefix(v); err == nil {
					n.Pods = append(n.Pods, p)
				} else if a, err := netip.ParseAddr(v); err == nil {
					n.Overlay = append(n.Overlay, a)
				} else {
					n.Key = v
				}
			}
			c.Nodes = append(c.Nodes, n)
		case strings.HasPrefix(w, "S:"):
			c.Services = append(c.Services, netip.MustParsePrefix(w[2:]))
		case strings.HasPrefix(w, "W:"):
			c.Was = append(c.Was, mapping.Range{Cluster: name, There: netip.MustParsePrefix(w[2:]),
				Here: netip.MustParsePrefix("240.0.0.0/8")})
		case strings.HasPrefix(w, "H:"):
			c.Accepted, c.Held = true, append(c.Held, netip.MustParsePrefix(w[2:]))
		default:
			c.Pods = append(c.Pods, netip.MustParsePrefix(w))
		}
	}
	return c
}

func TestDecide(t *testing.T) {
	for name, c := range map[string]struct {
		a, b string // a is older
		want string // a reason for each
		say  string // in what is said about the one that is refused, or the warnings
	}{
		"distinct":    {"10.1.0.0/16 S:10.101.0.0/16", "10.2.0.0/16 S:10.102.0.0/16", "Distinct Distinct", ""},
		"nothing yet": {"", "10.2.0.0/16", "Unlearned Distinct", "the ranges of cluster a are not known yet"},
		"equal": {"10.1.0.0/16", "10.1.0.0/16", "Distinct Overlap",
			"pods 10.1.0.0/16 of cluster b and pods 10.1.0.0/16 of cluster a overlap, and cluster a is older: use another range"},
		"services in pods": {"10.0.0.0/8", "S:10.96.0.0/12", "Distinct Overlap",
			"services 10.96.0.0/12 of cluster b and pods 10.0.0.0/8 of cluster a overlap"},
		"IPv6": {"fd00::/48", "fd00::/64", "Distinct Overlap", "pods fd00::/64 of cluster b and pods fd00::/48 of cluster a"},
		"the younger was accepted": {"10.1.0.0/16", "10.1.0.0/16 H:10.1.0.0/16", "Overlap Distinct",
			"cluster b was accepted for that before"},
		"both were": {"10.1.0.0/16 H:10.1.0.0/16", "10.1.0.0/16 H:10.1.0.0/16", "Distinct Overlap", "cluster a is older"},
		"an accepted one takes more": {"10.1.0.0/16 10.2.0.0/16 H:10.1.0.0/16", "10.2.0.0/16 H:10.2.0.0/16",
			"Overlap Distinct", "pods 10.2.0.0/16 of cluster a and pods 10.2.0.0/16 of cluster b overlap, and cluster b was"},
		"one that has it takes a part": {"10.0.0.0/8 H:10.0.0.0/8", "10.2.0.0/16 H:10.3.0.0/16", "Distinct Overlap", ""},
		"an accepted one before a new one": {"10.2.0.0/16", "10.1.0.0/16 10.2.0.0/16 H:10.1.0.0/16", "Overlap Distinct",
			"cluster b was accepted before"},

		"both mapped": {"10.1.0.0/16 10.1.0.0/16=240.1.0.0/16", "10.1.0.0/16 10.1.0.0/16=240.2.0.0/16",
			"Distinct Distinct", ""},
		"one mapped": {"10.1.0.0/16", "10.1.0.0/16 10.1.0.0/16=240.2.0.0/16", "Distinct Overlap",
			"map the range of cluster a too"},
		"the other one mapped": {"10.1.0.0/16 10.1.0.0/16=240.1.0.0/16", "10.1.0.0/16", "Distinct Overlap",
			"map the range of cluster b too"},
		"mapped to the same": {"10.1.0.0/16 10.1.0.0/16=240.1.0.0/16", "10.2.0.0/16 10.2.0.0/16=240.1.0.0/16",
			"Distinct Overlap", "240.1.0.0/16 (mapped from 10.2.0.0/16) of cluster b and 240.1.0.0/16 (mapped from 10.1"},
		"mapped to the range of another": {"10.1.0.0/16", "10.2.0.0/16 10.2.0.0/16=10.1.0.0/16", "Distinct Overlap",
			"10.1.0.0/16 (mapped from 10.2.0.0/16) of cluster b and pods 10.1.0.0/16 of cluster a"},
		"half is mapped": {"10.1.0.0/16 10.1.0.0/17=240.1.0.0/17", "10.1.0.0/17 10.1.0.0/17=240.2.0.0/17",
			"Distinct Overlap", "map the range of cluster a too"},
		"mapped no longer": {"10.1.0.0/16 H:10.1.0.0/16 W:10.1.0.0/16",
			"10.1.0.0/16 10.1.0.0/16=240.2.0.0/16 H:10.1.0.0/16 W:10.1.0.0/16", "Overlap Distinct",
			"map the range of cluster a too"},
		"mapped to its own": {"10.1.0.0/16 S:10.2.0.0/16 10.1.0.0/16=10.2.0.0/16", "10.3.0.0/16", "Invalid Distinct",
			"cluster a maps 10.1.0.0/16 to 10.2.0.0/16, which meets its own services 10.2.0.0/16"},
		"mapped to itself": {"10.1.0.0/16 10.1.0.0/16=10.1.0.0/16", "10.3.0.0/16", "Distinct Distinct", ""},
		"two mapped to one": {"10.1.0.0/16 10.2.0.0/16 10.1.0.0/16=240.1.0.0/16 10.2.0.0/16=240.1.0.0/16", "10.3.0.0/16",
			"Invalid Distinct", "which meet"},
		"another size": {"10.1.0.0/16 10.1.0.0/16=240.0.0.0/15", "10.3.0.0/16", "Invalid Distinct", "another size"},
		"nothing of it is mapped": {"10.1.0.0/16 10.9.0.0/16=240.1.0.0/16", "10.3.0.0/16", "Distinct Distinct",
			"cluster a maps 10.9.0.0/16, which is none of its ranges"},

		"loopback":      {"127.1.0.0/16", "10.3.0.0/16", "Invalid Distinct", "pods 127.1.0.0/16: that is loopback"},
		"link-local":    {"S:169.254.0.0/17", "10.3.0.0/16", "Invalid Distinct", "link-local"},
		"everything":    {"0.0.0.0/0", "10.3.0.0/16", "Invalid Distinct", "the default route"},
		"multicast":     {"ff00::/16", "10.3.0.0/16", "Invalid Distinct", "multicast"},
		"mapped to it":  {"10.1.0.0/16 10.1.0.0/16=224.1.0.0/16", "10.3.0.0/16", "Invalid Distinct", "multicast"},
		"the free pool": {"100.113.0.0/16", "10.3.0.0/16 n@100.64.0.1", "Distinct Distinct", ""},
		"the pool": {"100.113.0.0/16", "10.3.0.0/16 n@100.127.0.1", "Invalid Distinct",
			"cluster a has pods 100.113.0.0/16: that is in 100.112.0.0/12"},
		"the pool, accepted": {"100.113.0.0/16 H:100.113.0.0/16", "10.3.0.0/16 n@100.127.0.1", "Distinct Distinct", ""},

		"a node's range": {"10.1.0.0/16 n@10.1.3.0/24", "10.2.0.0/16 n@10.2.3.0/24", "Distinct Distinct", ""},
		"one of no range": {"10.1.0.0/16 n@10.7.3.0/24", "10.2.0.0/16", "Distinct Distinct",
			"node n has pods in 10.7.3.0/24, which is in no range of pods of cluster a"},
		"a node takes from another": {"10.1.0.0/16 n@10.2.3.0/24 H:10.1.0.0/16", "10.2.0.0/16 H:10.2.0.0/16",
			"Overlap Distinct", "pods of node n 10.2.3.0/24 of cluster a and pods 10.2.0.0/16 of cluster b"},
		"so does one of a cluster without ranges": {"n@10.2.3.0/24", "10.2.0.0/16 H:10.2.0.0/16", "Overlap Distinct", ""},
		"an address in a range": {"10.1.0.0/16 n@10.2.3.4 H:10.1.0.0/16", "10.2.0.0/16 H:10.2.0.0/16", "Overlap Distinct",
			"the address 10.2.3.4 of node n of cluster a and pods 10.2.0.0/16 of cluster b overlap"},
		"a range around an address": {"10.1.0.0/16 10.9.0.0/16 H:10.1.0.0/16", "10.2.0.0/16 n@10.9.3.4 H:10.2.0.0/16",
			"Overlap Distinct", "cluster b has that node already"},
		"the same key": {"10.1.0.0/16 n@k1", "10.2.0.0/16 m@k1", "Distinct Distinct",
			"node m of cluster b has the public key of node n of cluster a, k1"},
		"the same address": {"10.1.0.0/16 n@fd00::1", "10.2.0.0/16 m@fd00::1", "Distinct Distinct",
			"node m of cluster b has the address of node n of cluster a, fd00::1"},
	} {
		in := []accept.Cluster{cluster("a", 2, c.a), cluster("b", 1, c.b)}
		out := accept.Decide(in)
		got, said := fmt.Sprint(out[0].Reason, " ", out[1].Reason), fmt.Sprint(out)
		if got != c.want || !strings.Contains(said, c.say) {
			t.Errorf("%s: %s, not %s: %v", name, got, c.want, said)
		}
		if warned := len(out[0].Warnings)+len(out[1].Warnings) > 0; warned && c.say == "" {
			t.Errorf("%s: %v", name, out)
		}
		for _, v := range out {
			if v.Accepted != (v.Reason == accept.Distinct) || v.Accepted != (len(v.Holds) > 0) {
				t.Errorf("%s: %+v", name, v)
			}
		}
	}
}

// TestMany: there are bounds, and what is held and mapped is told.
func TestMany(t *testing.T) {
	var words []string
	for i := range accept.MostClaims + 1 {
		words = append(words, fmt.Sprintf("n%d@%d.%d.%d.0/24", i, 11+i/65536, i/256%256, i%256))
	}
	c := cluster("a", 1, "10.0.0.0/8 "+strings.Join(words, " "))
	if v := accept.Decide([]accept.Cluster{c})[0]; v.Reason != accept.Invalid || len(v.Warnings) != 9 {
		t.Errorf("%s, %d warnings", v.Why, len(v.Warnings))
	}
	c = cluster("a", 1, "10.1.0.0/16 10.1.0.0/17 S:10.96.0.0/12 10.1.0.0/16=240.1.0.0/16 n@10.1.2.0/24,fd00::1")
	v := accept.Decide([]accept.Cluster{c})[0]
	if !slices.Equal(v.Holds, ranges("10.1.0.0/16 10.96.0.0/12 240.1.0.0/16")) || len(v.Mapped) != 1 {
		t.Errorf("%+v", v)
	}
	c = cluster("a", 1, "10.1.0.0/16 n@fd00:7::/64")
	c.Unlinked = ranges("fd00:7::/48")
	if v := accept.Decide([]accept.Cluster{c})[0]; !v.Accepted || len(v.Warnings) != 0 || len(v.Holds) != 2 {
		t.Errorf("%+v", v)
	}
	c.Broken = "its spec cannot be read"
	if v := accept.Decide([]accept.Cluster{c})[0]; v.Reason != accept.Invalid || v.Why != "cluster a: its spec cannot be read" {
		t.Errorf("%+v", v)
	}
}

// TestAWinnerThatIsRefusedKeepsNobodyOut: b loses to a, so c, which only meets b, is accepted.
func TestAWinnerThatIsRefusedKeepsNobodyOut(t *testing.T) {
	v := accept.Decide([]accept.Cluster{cluster("c", 1, "10.2.0.0/16"), cluster("b", 2, "10.1.0.0/16 10.2.0.0/16"),
		cluster("a", 3, "10.1.0.0/16")})
	if !v[0].Accepted || v[1].Accepted || !v[2].Accepted {
		t.Errorf("%+v", v)
	}
}

// TestDoubledAsNodesSeeIt: the host warns of the node that does not count, by order within a second, and not of one
// against a node whose cluster is refused.
func TestDoubledAsNodesSeeIt(t *testing.T) {
	in := []accept.Cluster{cluster("a", 1, "10.1.0.0/16 n@k1"), cluster("b", 1, "10.2.0.0/16 m@k1")}
	for what, c := range map[string]struct {
		a, b uint64
		who  int
	}{"no order": {0, 0, 1}, "the second is first": {9, 8, 0}, "one has an order": {0, 8, 0}} {
		in[0].Nodes[0].Order, in[1].Nodes[0].Order = c.a, c.b
		v := accept.Decide(in)
		if len(v[c.who].Warnings) != 1 || len(v[1-c.who].Warnings) != 0 {
			t.Errorf("%s: %+v", what, v)
		}
	}
	in[0].Broken, in[0].Nodes[0].Order = "its spec cannot be read", 1
	if v := accept.Decide(in); len(v[0].Warnings) != 1 || len(v[1].Warnings) != 0 {
		t.Errorf("a cluster that is refused: %+v", v)
	}
}

// TestMark: a node that came after the one that has its key or address is marked, one that came before it never is, and
// a mark is not made twice.
func TestMark(t *testing.T) {
	marks := func(in ...accept.Cluster) string {
		var out []string
		for _, v := range accept.Decide(in) {
			out = append(out, fmt.Sprint(v.Mark))
		}
		return strings.Join(out, " ")
	}
	a, b := cluster("a", 2, "10.1.0.0/16 n@k1,fd00::1"), cluster("b", 1, "10.2.0.0/16 m@k2,fd00::1 o@k1 p@k3")
	const both = "map[] map[m:it has the address of node n of cluster a, fd00::1 o:it has the public key of node n of cluster a, k1]"
	if got := marks(a, b); got != both {
		t.Errorf("%s", got)
	}
	a.Broken = "its spec cannot be read" // those of b count now, and that is no reason to mark those of a
	if got := marks(a, b); got != "map[] map[]" {
		t.Errorf("the first is refused: %s", got)
	}
	a.Broken, b.Broken = "", a.Broken
	if got := marks(a, b); got != both {
		t.Errorf("the second is refused: %s", got)
	}
	b.Broken = ""
	a.Nodes[0].Created, a.Nodes[0].Key = b.Created, "k9" // without an order names decide, which marks nobody
	if got := marks(a, b); got != "map[] map[]" {
		t.Errorf("no order is noted: %s", got)
	}
	a.Nodes[0].Created = b.Created.Add(time.Hour) // it is made anew
	b.Nodes[0].Marked = "it has the address of node n of cluster a, fd00::1"
	b.Nodes[1].Marked = "it has the public key of node n of cluster a, k1"
	v := accept.Decide([]accept.Cluster{a, b})
	if len(v[0].Mark)+len(v[1].Mark)+len(v[0].Warnings) > 0 || !slices.Equal(v[1].Warnings, []string{
		"node m of cluster b has the address of node n of cluster a, fd00::1",
		"node o of cluster b is marked, and does not count: it has the public key of node n of cluster a, k1"}) {
		t.Errorf("%+v", v)
	}
}
