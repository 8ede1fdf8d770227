// SPDX-License-Identifier: Apache-2.0

package explain_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/link/explain"
	"github.com/tombolo-io/tombolo/internal/link/reach"
	"github.com/tombolo-io/tombolo/internal/route/mapping"
)

func prefixes(all ...string) (out []netip.Prefix) {
	for _, p := range all {
		out = append(out, netip.MustParsePrefix(p))
	}
	return out
}

func name(text string) reach.Name {
	cluster, node, _ := strings.Cut(text, ".")
	return reach.Name{Cluster: cluster, Node: node}
}

// facts: east has the nodes a and b; west the gateway g and the node d, which others know by 240.2.0.0/16; the ranges
// of both are equal but for that.
func facts(t *testing.T) explain.Facts {
	t.Helper()
	mapped := func(cluster, there, here string) []mapping.Range {
		m, err := mapping.Parse(cluster, there, here)
		if err != nil {
			t.Fatal(err)
		}
		return []mapping.Range{m}
	}
	node := func(of, pods string, gateway bool) reach.Node {
		return reach.Node{Name: name(of), Pods: prefixes(pods), Gateway: gateway, Ready: true}
	}
	return explain.Facts{View: reach.View{
		Clusters: []reach.Cluster{
			{Name: "east", Pods: prefixes("10.1.0.0/16"), Services: prefixes("10.101.0.0/16")},
			{Name: "west", Gateway: true, Pods: prefixes("10.2.0.0/16"), Services: prefixes("10.102.0.0/16"),
				Mapped: mapped("west", "10.2.0.0/16", "240.2.0.0/16")}},
		Nodes: []reach.Node{node("east.a", "10.1.1.0/24", false), node("east.b", "10.1.2.0/24", false),
			node("west.d", "10.2.3.0/24", false), node("west.g", "10.2.1.0/24", true)},
	}, Tunnels: map[reach.Name]map[reach.Name]explain.Tunnel{
		name("east.a"): {name("west.g"): {State: "relayed", Reason: "UDP is blocked"}}}}
}

func TestExplain(t *testing.T) {
	for what, test := range map[string]struct{ from, to, want string }{
		"through a gateway, mapped": {"east.a", "240.2.3.7", `
there: 240.2.3.7 is an address of pods at west.d, which knows it as 10.2.3.7
  east.a sends it to west.g, whose tunnel is relayed: UDP is blocked
  west.g sends it to west.d
back: 10.1.1.1 is an address of pods at east.a
  west.d sends it to west.g
  west.g sends it to east.a
`},
		"a gateway itself": {"west.g", "10.1.2.9", `
there: 10.1.2.9 is an address of pods at east.b
  west.g sends it to east.b
back: 240.2.1.1 is an address of pods at west.g, which knows it as 10.2.1.1
  east.b sends it to west.g
`},
		"a Service": {"east.b", "10.102.0.10", `
there: 10.102.0.10 is an address of a Service of cluster west
  east.b sends it to west.g
  there, kube-proxy or what is in its place sends it to a pod
back: 10.1.2.1 is an address of pods at east.b
  west.g sends it to east.b
`},
		"the unmapped range": {"east.a", "10.2.3.7", `
there: 10.2.3.7
  it does not arrive: no linked cluster has this address: it goes by the machine's own routes
`},
		"a range without a node": {"east.a", "240.2.200.1", `
there: 240.2.200.1 is an address of pods of cluster west, which knows it as 10.2.200.1
  east.a sends it to west.g, whose tunnel is relayed: UDP is blocked
  it does not arrive: it is in a range of west, but of no node there
`},
		"the own cluster": {"east.a", "10.1.2.1", `
there: 10.1.2.1 is an address of pods at east.b
  the network plugin of the cluster carries it on
`},
		"the own node": {"east.a", "10.1.1.5", `
there: 10.1.1.5 is an address of pods at east.a
  it is behind east.a itself
`},
	} {
		x, err := explain.Explain(facts(t), name(test.from), netip.MustParseAddr(test.to))
		if got := x.String(); err != nil || got != strings.TrimPrefix(test.want, "\n") {
			t.Errorf("%s: %v\n%s", what, err, got)
		}
	}
	f := facts(t)
	if _, err := explain.Explain(f, name("east.x"), netip.MustParseAddr("10.2.3.7")); !fault.Has(err, fault.CodeNotFound) {
		t.Errorf("from a node that is not there: %v", err)
	}
	f.View.Nodes[3].Doubled = "it has the key of north.n"
	if x, err := explain.Explain(f, name("east.a"), netip.MustParseAddr("240.2.3.7")); err != nil ||
		!strings.Contains(x.String(), "east.a has no tunnel with west.g: it has the key of north.n") {
		t.Errorf("a gateway that does not count: %v\n%s", err, x)
	}
	if x, err := explain.Explain(f, name("west.d"), netip.MustParseAddr("10.1.1.7")); err != nil || len(x.There.Hops) != 2 {
		t.Errorf("it counts in its own cluster: %v\n%s", err, x)
	}
	other := f.View.Nodes[3]
	other.Name, other.Pods, other.Doubled = name("west.c"), nil, ""
	f.View.Nodes = append(f.View.Nodes, other)
	if x, err := explain.Explain(f, name("east.a"), netip.MustParseAddr("240.2.3.7")); err != nil || x.There.Lost != "" ||
		x.There.Hops[0].To != "west.c" {
		t.Errorf("another gateway takes its place: %v\n%s", err, x)
	}
	f.View.Nodes, f.Problems = f.View.Nodes[:3], []string{"the ClusterNode \"west.g\" does not count"}
	x, err := explain.Explain(f, name("east.a"), netip.MustParseAddr("240.2.3.7"))
	if err != nil || x.Back != nil || !strings.Contains(x.String(), "no node or gateway of west is known") ||
		!strings.Contains(x.String(), "problem: the ClusterNode") {
		t.Errorf("without a gateway: %v\n%s", err, x)
	}
}
