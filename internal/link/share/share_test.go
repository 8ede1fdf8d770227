// SPDX-License-Identifier: Apache-2.0

package share_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/link/share"
)

func addrs(texts ...string) (out []netip.Addr) {
	for _, t := range texts {
		out = append(out, netip.MustParseAddr(t))
	}
	return out
}

func ranges(texts ...string) (out []share.Range) {
	for _, t := range texts {
		out = append(out, share.Range{Prefix: netip.MustParsePrefix(t), From: "a test"})
	}
	return out
}

// facts are those of a cluster c with n nodes n1, n2..., all ready and in the mesh.
func facts(n int) share.Facts {
	f := share.Facts{Cluster: "c", Gateways: 2, Members: map[string]v1alpha1.MemberSpec{}, Now: time.Unix(1000, 0),
		Excludes: func(labels map[string]string) bool { return labels["linked"] == "no" },
		Pods:     ranges("10.1.0.0/16", "fd01::/48"), Services: ranges("10.101.0.0/16")}
	for i := 1; i <= n; i++ {
		name := fmt.Sprintf("n%d", i)
		f.Nodes = append(f.Nodes, share.Node{Name: name, Ready: true, Labels: map[string]string{"zone": fmt.Sprint(i % 2)},
			Addresses: addrs(fmt.Sprintf("192.168.0.%d", i), fmt.Sprintf("fd00::%d", i)),
			Pods: []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("10.1.%d.0/24", i)),
				netip.MustParsePrefix(fmt.Sprintf("fd01::%d:0/112", i))}})
		f.Members[name] = v1alpha1.MemberSpec{PublicKey: "key of " + name, Overlay4: fmt.Sprintf("100.64.0.%d", i),
			Addresses: []string{fmt.Sprintf("192.168.0.%d", i)}, Endpoints: []string{fmt.Sprintf("192.168.0.%d:51820", i)}}
	}
	return f
}

// states has a node state endpoints.
func states(f *share.Facts, node string, endpoints ...string) {
	m := f.Members[node]
	m.Endpoints = endpoints
	f.Members[node] = m
}

// line is a node for a comparison.
func line(n share.Stated) string {
	out := n.NodeName
	if !n.Ready {
		out += " NotReady"
	}
	for _, part := range []string{n.IP, n.IP6, string(n.ElasticIP), strings.Join(n.PodCIDRs, ","), strings.Join(n.Roles, ",")} {
		out += " " + part
		if part == "" {
			out += "-"
		}
	}
	return out
}

func TestNodes(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*share.Facts)
		want   []string // nil: as without the change
	}{
		"as they are": {func(*share.Facts) {}, nil},
		"not ready": {func(f *share.Facts) { f.Nodes[1].Ready = false },
			[]string{"n1 192.168.0.1 fd00::1 - 10.1.1.0/24,fd01::1:0/112 -",
				"n2 NotReady 192.168.0.2 fd00::2 - 10.1.2.0/24,fd01::2:0/112 -"}},
		"excluded by name": {func(f *share.Facts) { f.Spec.ExcludeNodes = []string{"n2", "n9"} },
			[]string{"n1 192.168.0.1 fd00::1 - 10.1.1.0/24,fd01::1:0/112 -"}},
		"excluded by a label": {func(f *share.Facts) { f.Nodes[0].Labels["linked"] = "no" },
			[]string{"n2 192.168.0.2 fd00::2 - 10.1.2.0/24,fd01::2:0/112 -"}},
		"a selector that cannot be read": {func(f *share.Facts) {
			f.Excludes, f.Before = nil, []v1alpha1.ClusterNodeSpec{{NodeName: "n1"}}
		}, []string{"n1 192.168.0.1 fd00::1 - 10.1.1.0/24,fd01::1:0/112 -"}},
		"one IP version": {func(f *share.Facts) { f.Spec.IPFamily = v1alpha1.FamilyIPv4 },
			[]string{"n1 192.168.0.1 fd00::1 - 10.1.1.0/24 -", "n2 192.168.0.2 fd00::2 - 10.1.2.0/24 -"}},
		"another interface": {func(f *share.Facts) {
			f.Spec.NICs = []v1alpha1.ClusterNIC{{Nodes: []string{"n2"}, Interface: "eth1"}}
			f.Nodes[0].NIC.Addresses, f.Nodes[1].NIC.Addresses = addrs("10.9.0.1"), addrs("10.9.0.2", "10.9.0.3")
		}, []string{"n1 192.168.0.1 fd00::1 - 10.1.1.0/24,fd01::1:0/112 -", "n2 10.9.0.2 - - 10.1.2.0/24,fd01::2:0/112 -"}},
		"elastic by the spec, else as stated": {func(f *share.Facts) {
			f.Spec.NodeElasticIPMap = map[string]v1alpha1.Address{"n1": "198.51.100.1"}
			states(f, "n1", "198.51.100.7:1")
			states(f, "n2", "192.168.0.2:1", "198.51.100.9:7", "198.51.100.2:1", "bad")
		}, []string{"n1 192.168.0.1 fd00::1 198.51.100.1 10.1.1.0/24,fd01::1:0/112 -",
			"n2 192.168.0.2 fd00::2 198.51.100.2 10.1.2.0/24,fd01::2:0/112 -"}},
		"an elastic address stays while it is stated": {func(f *share.Facts) {
			states(f, "n2", "198.51.100.9:7", "198.51.100.2:1")
			f.Before = []v1alpha1.ClusterNodeSpec{{NodeName: "n2", ElasticIP: "198.51.100.9"}, {NodeName: "n1", ElasticIP: "198.51.100.4"}}
		}, []string{"n1 192.168.0.1 fd00::1 - 10.1.1.0/24,fd01::1:0/112 -",
			"n2 192.168.0.2 fd00::2 198.51.100.9 10.1.2.0/24,fd01::2:0/112 -"}},
		"a NAT of both": {func(f *share.Facts) {
			states(f, "n1", "198.51.100.1:1")
			states(f, "n2", "198.51.100.1:2")
		}, nil},
		"its own, private, a provider's, and the Node's": {func(f *share.Facts) {
			f.Nodes[0].Addresses = append(f.Nodes[0].Addresses, addrs("203.0.113.1")...)
			states(f, "n1", "203.0.113.1:1", "10.0.0.1:1", "100.64.0.1:1", "[fe80::1]:1", "[fd00::7]:1")
		}, nil},
		"nobody is a gateway node to node": {func(f *share.Facts) {
			f.Before = []v1alpha1.ClusterNodeSpec{{NodeName: "n1", Roles: []string{"gateway"}}}
		}, nil},
	} {
		f := facts(2)
		c.change(&f)
		if c.want == nil {
			c.want = []string{"n1 192.168.0.1 fd00::1 - 10.1.1.0/24,fd01::1:0/112 -",
				"n2 192.168.0.2 fd00::2 - 10.1.2.0/24,fd01::2:0/112 -"}
		}
		var got []string
		for _, n := range share.Decide(f).Nodes {
			got = append(got, line(n))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s:\n%s\nwant:\n%s", name, strings.Join(got, "\n"), strings.Join(c.want, "\n"))
		}
	}
}

func TestTunnelsAreThoseOfMembers(t *testing.T) {
	f := facts(2)
	m := v1alpha1.MemberSpec{PublicKey: "k", Overlay6: "fd7f::1", Overlay4: "100.64.0.1", Endpoints: []string{"a", "b"},
		Mesh: 3, Pin: "p", Engine: "ipsec", RelayCluster: "r", Relays: []string{"h"}}
	f.Members = map[string]v1alpha1.MemberSpec{"n1": m}
	nodes := share.Decide(f).Nodes
	if got, want := fmt.Sprint(nodes[0].ClusterNodeTunnel), "{k p ipsec fd7f::1 100.64.0.1 [a b] 3 r [h]}"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if nodes[0].ClusterName != "c" || nodes[1].PublicKey != "" {
		t.Errorf("%+v", nodes)
	}
}

func TestVerdict(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*share.Facts)
		want   string
	}{
		"well": {func(*share.Facts) {}, "true InForce 3 of 3 nodes that take part are ready and in the mesh"},
		"a problem that keeps nobody": {func(f *share.Facts) { f.Problems = []string{"b", "a"} },
			"true InForce 3 of 3 nodes that take part are ready and in the mesh; a; b"},
		"no pods": {func(f *share.Facts) { f.Pods, f.Problems = nil, []string{"because"} },
			"false Unlearned the ranges of pods are not known; because"},
		"none of the linked version": {func(f *share.Facts) { f.Spec.IPFamily = v1alpha1.FamilyIPv6 },
			"false Unlearned the ranges of services are not known"},
		"nothing":    {func(f *share.Facts) { f.Pods, f.Services = nil, nil }, "false Unlearned neither the ranges"},
		"no nodes":   {func(f *share.Facts) { f.Nodes = nil }, "false NoNode none of 0 nodes"},
		"no mesh":    {func(f *share.Facts) { f.Members = nil }, "false NoNode none of 3 nodes that are ready runs"},
		"a selector": {func(f *share.Facts) { f.Excludes = nil }, "false Invalid spec.excludeSelector"},
		"no gateway": {func(f *share.Facts) {
			f.Spec.NetworkType, f.Selector = v1alpha1.NetworkGateway, map[string]string{"zone": "9"}
		}, "false NoNode no node that is ready may be a gateway"},
		"too long": {func(f *share.Facts) { f.Problems = []string{strings.Repeat("é", 5000)} }, "true InForce 3 of 3"},
	} {
		f := facts(3)
		c.change(&f)
		v := share.Decide(f).Verdict
		if got := fmt.Sprintf("%v %s %s", v.Ready, v.Reason, v.Message); !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		if len(v.Message) > 4096 {
			t.Errorf("%s: %d bytes", name, len(v.Message))
		}
	}
}

func TestRanges(t *testing.T) {
	f := facts(1)
	f.Pods = append(f.Pods, f.Pods[0])
	s := share.Decide(f)
	if got := fmt.Sprint(s.Pods, s.Services); got != "[{10.1.0.0/16 a test} {fd01::/48 a test}] [{10.101.0.0/16 a test}]" {
		t.Error(got)
	}
}
