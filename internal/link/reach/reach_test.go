// SPDX-License-Identifier: Apache-2.0

package reach_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tombolo-io/tombolo/internal/link/reach"
	"github.com/tombolo-io/tombolo/internal/route/mapping"
)

func prefixes(texts ...string) (out []netip.Prefix) {
	for _, t := range texts {
		out = append(out, netip.MustParsePrefix(t))
	}
	return out
}

// cluster has n nodes NAME1, NAME2..., whose pods are in 10.I.N.0/24.
func cluster(name string, i, n int, gateways ...int) (reach.Cluster, []reach.Node) {
	c := reach.Cluster{Name: name, Gateway: len(gateways) > 0, Pods: prefixes(fmt.Sprintf("10.%d.0.0/16", i)),
		Services: prefixes(fmt.Sprintf("10.%d.0.0/16", 100+i))}
	var nodes []reach.Node
	for k := 1; k <= n; k++ {
		nodes = append(nodes, reach.Node{Name: reach.Name{Cluster: name, Node: fmt.Sprintf("n%d", k)}, Ready: true,
			Pods: prefixes(fmt.Sprintf("10.%d.%d.0/24", i, k)), Gateway: slices.Contains(gateways, k)})
	}
	return c, nodes
}

func text(p reach.Plan) string {
	var out []string
	for to, ranges := range p.Send {
		var of []string
		for _, r := range ranges {
			of = append(of, r.String())
		}
		slices.Sort(of)
		out = append(out, to.String()+": "+strings.Join(of, " "))
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

func TestDecide(t *testing.T) {
	a, an := cluster("a", 1, 2)
	b, bn := cluster("b", 2, 3, 1, 2)
	lone, ln := cluster("b", 2, 2, 2)
	flat, fn := cluster("b", 2, 2)
	mapped := flat
	mapped.Mapped = []mapping.Range{{Cluster: "b", There: flat.Pods[0], Here: netip.MustParsePrefix("240.2.0.0/16")}}
	gone := slices.Clone(ln)
	gone[1].Gateway = false
	for name, c := range map[string]struct {
		self     reach.Name
		clusters []reach.Cluster
		nodes    []reach.Node
		want     string
	}{
		"alone":                {an[0].Name, []reach.Cluster{a}, an, ""},
		"a cluster not linked": {reach.Name{Cluster: "c", Node: "n1"}, []reach.Cluster{a, b}, slices.Concat(an, bn), ""},
		"node to node": {an[0].Name, []reach.Cluster{a, flat}, slices.Concat(an, fn),
			"b.n1: 10.2.1.0/24\nb.n2: 10.102.0.0/16 10.2.0.0/16 10.2.2.0/24"},
		"mapped": {an[0].Name, []reach.Cluster{a, mapped}, slices.Concat(an, fn),
			"b.n1: 240.2.1.0/24\nb.n2: 10.102.0.0/16 240.2.0.0/16 240.2.2.0/24"},
		"to the only gateway": {an[0].Name, []reach.Cluster{a, lone}, slices.Concat(an, ln),
			"b.n2: 10.102.0.0/16 10.2.0.0/16 10.2.1.0/24 10.2.2.0/24"},
		"from behind a gateway": {ln[0].Name, []reach.Cluster{a, lone}, slices.Concat(an, ln),
			"b.n2: 10.1.0.0/16 10.1.1.0/24 10.1.2.0/24 10.101.0.0/16 10.2.2.0/24"},
		"from a gateway": {ln[1].Name, []reach.Cluster{a, lone}, slices.Concat(an, ln),
			"a.n1: 10.1.1.0/24 10.101.0.0/16\na.n2: 10.1.0.0/16 10.1.2.0/24\nb.n1: 10.2.1.0/24"},
		"no gateway, there": {an[0].Name, []reach.Cluster{a, lone}, slices.Concat(an, gone), ""},
		"no gateway, here":  {ln[0].Name, []reach.Cluster{a, lone}, slices.Concat(an, gone), ""},
	} {
		p := reach.Decide(reach.View{Self: c.self, Clusters: c.clusters, Nodes: c.nodes})
		if got := text(p); got != c.want {
			t.Errorf("%s:\n%s\nwant:\n%s", name, got, c.want)
		}
	}
}

// TestWhatGoesMovesAlone: when a gateway goes, only what it had moves; and it comes back as it was.
func TestWhatGoesMovesAlone(t *testing.T) {
	a, an := cluster("a", 1, 1)
	b, bn := cluster("b", 2, 200, 1, 2, 3)
	owners := func(change func(*reach.Node)) map[netip.Prefix]string {
		nodes := slices.Clone(bn)
		change(&nodes[1])
		out := map[netip.Prefix]string{}
		p := reach.Decide(reach.View{Self: an[0].Name, Clusters: []reach.Cluster{a, b}, Nodes: slices.Concat(an, nodes)})
		for to, ranges := range p.Send {
			for _, r := range ranges {
				out[r] = to.Node
			}
		}
		return out
	}
	before := owners(func(*reach.Node) {})
	had := map[string]int{}
	for _, o := range before {
		had[o]++
	}
	for _, n := range []string{"n1", "n2", "n3"} {
		if had[n] < 40 {
			t.Errorf("%s has %d of %d ranges", n, had[n], len(before))
		}
	}
	for name, change := range map[string]func(*reach.Node){
		"down": func(n *reach.Node) { n.Down = true }, "not ready": func(n *reach.Node) { n.Ready = false },
		"no gateway": func(n *reach.Node) { n.Gateway = false }, "alone": func(n *reach.Node) { n.Alone = true },
	} {
		for r, o := range owners(change) {
			if mine := (name == "not ready" || name == "alone") && r == bn[1].Pods[0]; mine { // packets of its own pods pass
				continue
			}
			if o == "n2" || before[r] != "n2" && o != before[r] {
				t.Errorf("%s: %s went from %s to %s", name, r, before[r], o)
			}
		}
	}
}

// TestAlone: when a gateway says that it reaches no other node of its cluster, and that it is still better than nothing.
func TestAlone(t *testing.T) {
	a, an := cluster("a", 1, 1)
	b, bn := cluster("b", 2, 3, 1, 2)
	for i := range bn {
		bn[i].Key[0] = byte(i + 1)
	}
	for name, c := range map[string]struct {
		self   int
		change func([]reach.Node)
		want   bool
	}{
		"all are there":        {0, func([]reach.Node) {}, false},
		"one is there":         {0, func(n []reach.Node) { n[1].Down = true }, false},
		"none is":              {0, func(n []reach.Node) { n[1].Down, n[2].Down = true, true }, true},
		"one is in doubt":      {0, func(n []reach.Node) { n[1].Down, n[1].Fell, n[2].Doubt = true, true, true }, true},
		"one is lost for long": {0, func(n []reach.Node) { n[1].Down, n[2].Doubt = true, true }, false},
		"all are in doubt":     {0, func(n []reach.Node) { n[1].Doubt, n[2].Doubt = true, true }, false},
		"one is idle":          {0, func(n []reach.Node) { n[1].Down, n[2].Idle = true, true }, true},
		"all are idle":         {0, func(n []reach.Node) { n[1].Idle, n[2].Idle = true, true }, false},
		"the other gateway":    {1, func(n []reach.Node) { n[0].Down, n[2].Down = true, true }, true},
		"no gateway":           {2, func(n []reach.Node) { n[0].Down, n[1].Down = true, true }, false},
		"others have no key":   {0, func(n []reach.Node) { n[1], n[2] = reach.Node{Name: n[1].Name}, reach.Node{Name: n[2].Name} }, false},
	} {
		nodes := slices.Clone(bn)
		c.change(nodes)
		v := reach.View{Self: bn[c.self].Name, Clusters: []reach.Cluster{a, b}, Nodes: slices.Concat(an, nodes)}
		if got := reach.Alone(v); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
		v.Clusters[1].Gateway = false
		if reach.Alone(v) {
			t.Errorf("%s, node to node: it is alone", name)
		}
	}
	nodes := slices.Clone(bn)
	nodes[0].Alone, nodes[1].Down = true, true
	p := reach.Decide(reach.View{Self: an[0].Name, Clusters: []reach.Cluster{a, b}, Nodes: slices.Concat(an, nodes)})
	if got := text(p); !strings.HasPrefix(got, "b.n1: ") || strings.Contains(got, "b.n2") {
		t.Errorf("with no other gateway:\n%s", got)
	}
}

// TestOthersGoThroughAGatewayThatReaches: a node leaves a gateway that has lost a cluster, for that cluster alone.
func TestOthersGoThroughAGatewayThatReaches(t *testing.T) {
	a, an := cluster("a", 1, 1)
	b, bn := cluster("b", 2, 3, 1, 2)
	c, cn := cluster("c", 3, 1)
	of := func() (toA, toC string) {
		p := reach.Decide(reach.View{Self: bn[2].Name, Clusters: []reach.Cluster{a, b, c}, Nodes: slices.Concat(an, bn, cn)})
		for to, ranges := range p.Send {
			if slices.Contains(ranges, a.Services[0]) {
				toA = to.Node
			}
			if slices.Contains(ranges, c.Services[0]) {
				toC = to.Node
			}
		}
		return toA, toC
	}
	first, same := of()
	for i := range bn {
		if bn[i].Node == first {
			bn[i].Lost = []string{"a"}
		}
	}
	toA, toC := of()
	if first != same || toA == first || toA == "" || toC != first {
		t.Errorf("before %s and %s, then %s and %s", first, same, toA, toC)
	}
}

// TestEveryPacketArrivesAndIsTaken: in any federation, with gateways dead or cut off from a cluster, each pod of a node
// that lives reaches each other one, and each node on the way takes the packet from the one that sent it.
func TestEveryPacketArrivesAndIsTaken(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		for _, from := range w.nodes {
			for _, to := range w.nodes {
				if from.Cluster != to.Cluster && !w.dead[from.Name] && !w.dead[to.Name] {
					w.follow(t, from, to)
				}
			}
		}
	})
}

type world struct {
	clusters []reach.Cluster
	nodes    []reach.Node
	dead     map[reach.Name]bool
	lost     map[reach.Name]string // of gateways
}

func drawWorld(t *rapid.T) world {
	w := world{dead: map[reach.Name]bool{}, lost: map[reach.Name]string{}}
	names := []string{"a", "b", "c"}
	for i, name := range names {
		size := rapid.IntRange(1, 4).Draw(t, "nodes")
		var gateways []int
		for k := range rapid.IntRange(0, size).Draw(t, "gateways") {
			gateways = append(gateways, k+1)
		}
		at := i
		mapped := rapid.Bool().Draw(t, "mapped")
		if mapped {
			at = 9 // the same ranges as others
		}
		c, nodes := cluster(name, at, size, gateways...)
		if mapped {
			for k, p := range []netip.Prefix{c.Pods[0], c.Services[0]} {
				c.Mapped = append(c.Mapped, mapping.Range{Cluster: name, There: p,
					Here: netip.MustParsePrefix(fmt.Sprintf("240.%d.0.0/16", 10*k+i))})
			}
		}
		w.clusters = append(w.clusters, c)
		w.nodes = append(w.nodes, nodes...)
		if len(gateways) > 1 {
			// One may die, another one may lose a cluster; one of them lives and reaches all.
			order := rapid.Permutation(gateways).Draw(t, "fates")
			if rapid.Bool().Draw(t, "dies") {
				w.dead[nodes[order[0]-1].Name] = true
			} else if other := rapid.SampledFrom(names).Draw(t, "loses"); other != name {
				w.lost[nodes[order[0]-1].Name] = other
			}
		}
	}
	for i := range w.nodes {
		w.nodes[i].Ready = rapid.Bool().Draw(t, "ready")
	}
	return w
}

// cut reports whether a node does not reach another cluster.
func (w world) cut(n reach.Node, cluster string) bool { return w.lost[n.Name] == cluster }

func (w world) view(self reach.Node) reach.View {
	v := reach.View{Self: self.Name, Clusters: w.clusters}
	for _, n := range w.nodes {
		n.Down = w.dead[n.Name] || n.Cluster != self.Cluster && (w.cut(n, self.Cluster) || w.cut(self, n.Cluster))
		if lost := w.lost[n.Name]; n.Cluster == self.Cluster && lost != "" {
			n.Lost = []string{lost}
		}
		v.Nodes = append(v.Nodes, n)
	}
	return v
}

func (w world) cluster(name string) reach.Cluster {
	return w.clusters[slices.IndexFunc(w.clusters, func(c reach.Cluster) bool { return c.Name == name })]
}

func (w world) outside(n reach.Node) netip.Addr {
	p := n.Pods[0]
	for _, m := range w.cluster(n.Cluster).Mapped {
		if out, ok := m.Out(p); ok {
			p = out
		}
	}
	return p.Addr()
}

// carries finds whom a plan sends an address to: the most specific range counts.
func carries(p reach.Plan, a netip.Addr) (to reach.Name, ok bool) {
	bits := -1
	for n, ranges := range p.Send {
		for _, r := range ranges {
			if r.Contains(a) && r.Bits() > bits {
				to, bits, ok = n, r.Bits(), true
			}
		}
	}
	return to, ok
}

func within(ranges []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Contains(a) })
}

func (w world) follow(t *rapid.T, from, to reach.Node) {
	src, dst := from.Pods[0].Addr(), w.outside(to)
	at, plan := from, reach.Decide(w.view(from))
	for hop := 0; ; hop++ {
		if hop > 3 {
			t.Fatalf("from %s to %s: it goes in circles", from, to)
		}
		next, ok := carries(plan, dst)
		if next.Cluster != from.Cluster && at.Cluster == from.Cluster { // it leaves here
			if len(w.cluster(at.Cluster).Mapped) != len(plan.Mapped) || !within(plan.Direct, dst) {
				t.Fatalf("from %s to %s: %s does not translate", from, to, at)
			}
			src = w.outside(from)
		}
		if !ok {
			t.Fatalf("from %s to %s: %s sends %s nowhere", from, to, at, dst)
		}
		i := slices.IndexFunc(w.nodes, func(n reach.Node) bool { return n.Name == next })
		before := at
		at, plan = w.nodes[i], reach.Decide(w.view(w.nodes[i]))
		if w.dead[at.Name] || w.cut(before, at.Cluster) || w.cut(at, before.Cluster) {
			t.Fatalf("from %s to %s: %s sends to %s, which it does not reach", from, to, before, at)
		}
		// Within the sender's cluster its packets have their own source until they leave.
		if back, ok := carries(plan, src); !ok || back != before.Name {
			t.Fatalf("from %s to %s: %s does not take %s from %s, but from %s", from, to, at, src, before, back)
		}
		if at.Cluster == to.Cluster && before.Cluster != to.Cluster { // it arrives here
			dst = to.Pods[0].Addr()
		}
		if at.Name == to.Name {
			return
		}
	}
}

// TestARangeHasOneOwner: a cluster whose ranges of pods are those of its nodes gives none of them to two nodes.
func TestARangeHasOneOwner(t *testing.T) {
	for _, gateway := range []bool{false, true} {
		v := reach.View{Self: reach.Name{Cluster: "east", Node: "a"}, Clusters: []reach.Cluster{{Name: "east"},
			{Name: "west", Gateway: gateway}}, Nodes: []reach.Node{{Name: reach.Name{Cluster: "east", Node: "a"}}}}
		for i := range 8 {
			pods := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 2, byte(i), 0}), 24)
			v.Clusters[1].Pods = append(v.Clusters[1].Pods, pods)
			v.Nodes = append(v.Nodes, reach.Node{Name: reach.Name{Cluster: "west", Node: string(rune('b' + i))}, Ready: true,
				Gateway: i < 4, Pods: []netip.Prefix{pods}})
		}
		owners := map[netip.Prefix]reach.Name{}
		for name, ranges := range reach.Decide(v).Send {
			for _, p := range ranges {
				if other, twice := owners[p]; twice {
					t.Errorf("gateway %t: %s is of %s and of %s", gateway, p, name, other)
				}
				owners[p] = name
			}
		}
		if len(owners) != 8 {
			t.Errorf("gateway %t: %v", gateway, owners)
		}
	}
}
