// SPDX-License-Identifier: Apache-2.0

package probe_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/link/check"
	"github.com/tombolo-io/tombolo/internal/link/probe"
	"github.com/tombolo-io/tombolo/internal/link/reach"
	"github.com/tombolo-io/tombolo/internal/route/mapping"
)

func TestSizes(t *testing.T) {
	if got := probe.Sizes(1420); got[0] != 1420 || !slices.IsSortedFunc(got, func(a, b int) int { return b - a }) {
		t.Error(got)
	}
	if got := probe.Sizes(1280); !slices.Equal(got, []int{1280, 1260, 1240, 1220, 1200, 1160, 1000, 576}) {
		t.Error(got)
	}
}

func prefixes(all ...string) (out []netip.Prefix) {
	for _, p := range all {
		out = append(out, netip.MustParsePrefix(p))
	}
	return out
}

// east has the node a; west has the gateways b and c and the node d, with its ranges mapped.
func view(self string) reach.View {
	m, err := mapping.Parse("west", "10.2.0.0/16", "240.2.0.0/16")
	if err != nil {
		panic(err)
	}
	node := func(cluster, name, pods string, gateway bool) reach.Node {
		return reach.Node{Name: reach.Name{Cluster: cluster, Node: name}, Pods: prefixes(pods), Gateway: gateway, Ready: true}
	}
	v := reach.View{
		Clusters: []reach.Cluster{{Name: "east", Pods: prefixes("10.1.0.0/16"), Services: prefixes("10.101.0.0/16")},
			{Name: "west", Gateway: true, Pods: prefixes("10.2.0.0/16"), Services: prefixes("fd00::/112"),
				Mapped: []mapping.Range{m}}},
		Nodes: []reach.Node{node("east", "a", "10.1.1.0/24", false), node("west", "b", "10.2.1.0/24", true),
			node("west", "c", "10.2.2.0/24", true), node("west", "d", "10.2.3.0/24", false)},
	}
	for _, n := range v.Nodes {
		if n.Node == self {
			v.Self = n.Name
		}
	}
	return v
}

func TestTargets(t *testing.T) {
	v := view("a")
	plan := reach.Decide(v)
	got, left := probe.Targets(v, plan, "")
	var text []string
	for _, x := range got {
		through := ""
		if x.Through != "" {
			through = " through a gateway of " + x.Through[:4]
		}
		text = append(text, fmt.Sprint(x.Name, through, x.Pods))
	}
	want := []string{"west.b[240.2.1.1]", "west.c[240.2.2.1]", "west.d through a gateway of west[240.2.3.1]"}
	if !slices.Equal(text, want) || left != 0 {
		t.Errorf("of a: %q, %d; want %q", text, left, want)
	}
	v = view("d")
	got, _ = probe.Targets(v, reach.Decide(v), "")
	if len(got) != 3 || got[0].Cluster != "east" || got[0].Through != got[1].Name && got[0].Through != got[2].Name ||
		got[1].Cluster != "west" || got[1].Through != "" {
		t.Errorf("of d: %+v; want a through a gateway, and both gateways", got)
	}
	if got, _ = probe.Targets(v, reach.Decide(v), "north"); len(got) != 2 { // its own gateways
		t.Errorf("of another cluster: %+v", got)
	}
	for i := range 2 * probe.Most {
		v.Nodes = append(v.Nodes, reach.Node{Name: reach.Name{Cluster: "east", Node: fmt.Sprint("n", i)},
			Pods: prefixes(fmt.Sprintf("10.1.%d.%d/32", 2+i/200, i%200))})
	}
	v.Self = reach.Name{Cluster: "west", Node: "b"}
	if got, left = probe.Targets(v, reach.Decide(v), ""); len(got) != probe.Most+1 || left != probe.Most+1 {
		t.Errorf("%d targets, %d are left", len(got), left)
	}
}

func TestServers(t *testing.T) {
	v := view("d")
	if got := probe.Servers(v, "", nil); len(got) != 1 || got[0].At.String() != "10.101.0.10" {
		t.Errorf("%v", got)
	}
	v = view("a")
	if got := probe.Servers(v, "west", nil); len(got) != 1 || got[0].At.String() != "fd00::a" {
		t.Errorf("%v", got)
	}
	named := map[string]netip.Addr{"west": netip.MustParseAddr("240.9.0.53")}
	if got := probe.Servers(v, "", named); len(got) != 1 || got[0].At.String() != "240.9.0.53" {
		t.Errorf("%v", got)
	}
	if got := probe.Servers(v, "north", named); len(got) != 0 {
		t.Errorf("%v", got)
	}
}

// Addresses of this machine answer; one that nobody has does not, and costs no more than its time.
func TestRun(t *testing.T) {
	local, nobody := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.255.255.255")
	peers, names := probe.Run(t.Context(), probe.Task{MTU: 1420, Wait: time.Second, Sources: []netip.Addr{local},
		Targets: []probe.Target{
			{Peer: check.Peer{Name: "here"}, To: local, Sure: []netip.Addr{local}, Pods: []netip.Addr{nobody}},
			{Peer: check.Peer{Name: "unknown"}},
			{Peer: check.Peer{Name: "behind", Through: "here"}, Pods: []netip.Addr{local}},
		},
		Servers: []probe.Server{{Cluster: "none"}, {Cluster: "silent", At: local}}})
	if len(peers) != 3 || len(names) != 2 {
		t.Fatal(peers, names)
	}
	here, unknown, behind := peers[0], peers[1], peers[2]
	if !here.Echo.Answered {
		t.Fatal(here.Echo.Why)
	}
	for _, s := range here.Sizes {
		if !s.Answered {
			t.Errorf("%d bytes: no answer", s.Bytes)
		}
	}
	if len(here.Pods) != 2 || !here.Pods[0].Answered || !here.Pods[0].Sure || here.Pods[1].Answered {
		t.Errorf("from pods: %+v", here.Pods)
	}
	if unknown.Echo.Answered || unknown.Echo.Why == "" || len(unknown.Sizes) != 0 {
		t.Errorf("%+v", unknown)
	}
	if len(behind.Sizes) != 0 || len(behind.Pods) != 1 || !behind.Pods[0].Answered {
		t.Errorf("%+v", behind)
	}
	if names[0].Answered || names[1].Answered || names[1].Why == "" {
		t.Errorf("%+v", names)
	}
}
