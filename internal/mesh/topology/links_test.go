// SPDX-License-Identifier: Apache-2.0

package topology_test

import (
	"net/netip"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/base/plan"
	"github.com/tombolo-io/tombolo/internal/mesh/topology"
	"github.com/tombolo-io/tombolo/internal/route/mapping"
)

// aGateway is node 1, a gateway of a cluster with pods 10.244.0.0/16 and services 10.96.0.0/16, which others know as
// 240.1.0.0/16. Node 2 is another one of its cluster, node 3 the gateway of another cluster, whose ranges are known as
// 240.2.0.0/16.
func aGateway() topology.Input {
	prefix := netip.MustParsePrefix
	members := []member.Facts{
		aMember(1, "192.0.2.1", "10.244.1.0/24", "10.96.0.0/16"), aMember(2, "192.0.2.2", "10.244.2.0/24"),
		aMember(3, "192.0.2.3", "240.2.1.0/24"),
	}
	in := topology.Input{Self: members[0], Members: members, Options: options(), Links: topology.Links{
		Linked: []netip.Prefix{prefix("240.2.0.0/16")}, Direct: []netip.Prefix{prefix("240.2.0.0/16"), prefix("100.112.0.3/32")},
		Mapped: []mapping.Range{{Cluster: "a", There: prefix("10.244.0.0/16"), Here: prefix("240.1.0.0/16")}},
		Passed: []netip.Prefix{prefix("10.244.2.0/24")}, Inside: []netip.Prefix{prefix("10.244.0.0/16")},
		Near: []netip.Prefix{prefix("100.112.0.2/32")}, Far: []netip.Prefix{prefix("100.112.0.3/32")}}}
	in.Options.Accept = append(in.Options.Accept, prefix("240.0.0.0/4"))
	return in
}

func TestLinks(t *testing.T) {
	s, peers, problems := topology.Plan(aGateway())
	golden(t, "links", text(s, peers, problems))
}

// TestWayOfLinkedPackets leads packets through the chains of a gateway, in the kernel's order.
func TestWayOfLinkedPackets(t *testing.T) {
	s, _, _ := topology.Plan(aGateway())
	const there = "240.2.1.7"
	for name, c := range map[string]struct {
		in, src, dst string
		dnat         string // where a Service leads
		out          string
		want         string // source, destination, and what decided about the source; or the chain that dropped it
	}{
		"from a pod here":                   {"cni0", pod1, there, "", link, "240.1.1.7 240.2.1.7 keep"},
		"from a pod of another node":        {link, pod2, there, "", link, "240.1.2.7 240.2.1.7 keep"},
		"to a pod here":                     {link, there, "240.1.1.7", "", "cni0", "240.2.1.7 10.244.1.7 keep"},
		"to a pod of another node":          {link, there, "240.1.2.7", "", link, "240.2.1.7 10.244.2.7 keep"},
		"to a Service, here":                {link, there, "10.96.0.1", pod1, "cni0", "240.2.1.7 10.244.1.7 keep"},
		"to a Service, elsewhere":           {link, there, "10.96.0.1", pod2, link, "240.2.1.7 10.244.2.7 masquerade"},
		"to the cluster's own addresses":    {link, there, pod2, "", link, "240.2.1.7 10.244.2.7 keep"},
		"to another cluster":                {link, there, "240.2.9.9", "", link, "arriving"},
		"to elsewhere":                      {link, there, "8.8.8.8", "", "eth0", "arriving"},
		"between nodes of this cluster":     {link, pod2, "10.244.3.9", "", link, "arriving"},
		"a foreign address from a node":     {link, "8.8.8.8", there, "", link, "arriving"},
		"to a linked range that is lost":    {"cni0", pod1, "240.2.200.1", "", link, "240.1.1.7 240.2.200.1 keep"},
		"from another node of this cluster": {link, "100.112.0.2", there, "", link, "100.112.0.2 240.2.1.7 masquerade"},
		"from a node there":                 {link, "100.112.0.3", "240.1.2.7", "", link, "100.112.0.3 10.244.2.7 masquerade"},
		"from a node there to a pod here":   {link, "100.112.0.3", "240.1.1.7", "", "cni0", "100.112.0.3 10.244.1.7 keep"},
		"from a node there to a Service":    {link, "100.112.0.3", "10.96.0.1", pod2, link, "100.112.0.3 10.244.2.7 masquerade"},
		"from a node there to another one":  {link, "100.112.0.3", "100.112.0.2", "", link, "arriving"},
		"from a node to no linked cluster":  {link, "100.112.0.2", "10.244.3.9", "", link, "arriving"},
		"in clear":                          {"cni0", pod1, there, "", "eth0", "leaving"},
		"a pod here to one of its own":      {"cni0", pod1, "10.244.1.8", "", "cni0", "10.244.1.7 10.244.1.8 accept"},
		"what this cluster is not known as": {link, there, "240.1.200.1", "", link, "arriving"},
	} {
		p := plan.Packet{Src: netip.MustParseAddr(c.src), Dst: netip.MustParseAddr(c.dst), In: c.in}
		walk := func(chains ...string) (got string) {
			for _, chain := range chains {
				v := s.Tables[0].Walk(chain, &p)
				if v.Do == "drop" {
					return chain
				}
				if chain == "linked-source" {
					got = v.Do
				}
			}
			return got
		}
		got := walk("linked-in", "arriving")
		if got == "" {
			if c.dnat != "" {
				p.Dst, p.DNAT = netip.MustParseAddr(c.dnat), true
			}
			if got = walk("prerouting"); got == "" {
				p.Out = c.out
				got = walk("forward", "postrouting", "linked-source", "leaving", "linked-out")
			}
		}
		switch got {
		case "keep", "masquerade", "accept":
			got = p.Src.String() + " " + p.Dst.String() + " " + got
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// TestErrorsAboutLinkedPackets: an ICMP error tells each cluster of a packet with the addresses that it knows.
func TestErrorsAboutLinkedPackets(t *testing.T) {
	s, _, _ := topology.Plan(aGateway())
	const there = "240.2.1.7"
	for name, c := range map[string]struct {
		chain, src, dst string
		about, want     [2]string
	}{
		"a pod here refuses":          {"linked-out", pod1, there, [2]string{there, pod1}, [2]string{there, "240.1.1.7"}},
		"a node here says too big":    {"linked-out", "100.112.0.1", there, [2]string{there, pod2}, [2]string{there, "240.1.2.7"}},
		"a pod there refuses":         {"linked-in", there, "240.1.1.7", [2]string{"240.1.1.7", there}, [2]string{pod1, there}},
		"a node there says too big":   {"linked-in", "100.112.0.3", "240.1.1.7", [2]string{"240.1.1.7", there}, [2]string{pod1, there}},
		"about an unmapped address":   {"linked-in", there, "240.1.1.7", [2]string{"8.8.8.8", there}, [2]string{"8.8.8.8", there}},
		"the link refuses":            {"linked-refused", "100.112.0.1", "240.1.1.7", [2]string{"240.1.1.7", there}, [2]string{pod1, there}},
		"about an address of the LAN": {"linked-refused", "100.112.0.1", "240.1.1.7", [2]string{"192.0.2.9", there}, [2]string{"192.0.2.9", there}},
		"from a node of this cluster": {"linked-in", pod2, pod1, [2]string{"240.1.1.7", pod2}, [2]string{"240.1.1.7", pod2}},
	} {
		p := plan.Packet{Src: netip.MustParseAddr(c.src), Dst: netip.MustParseAddr(c.dst), In: link, Out: link,
			AboutSrc: netip.MustParseAddr(c.about[0]), AboutDst: netip.MustParseAddr(c.about[1])}
		s.Tables[0].Walk(c.chain, &p)
		if got := [2]string{p.AboutSrc.String(), p.AboutDst.String()}; got != c.want {
			t.Errorf("%s: it is about %v, want %v", name, got, c.want)
		}
		if moved := p.Dst.String() == pod1; c.chain == "linked-refused" && moved != (c.about != c.want) {
			t.Errorf("%s: it is for %s", name, p.Dst)
		}
	}
}

// TestNestedRangesOfLinkedClusters: what one gateway has of a whole cluster contains what another one has of a node.
func TestNestedRangesOfLinkedClusters(t *testing.T) {
	all := []netip.Prefix{netip.MustParsePrefix("10.2.0.0/16"), netip.MustParsePrefix("10.2.3.0/24")}
	in := topology.Input{Self: aMember(1, "192.0.2.1"), Options: options(), Links: topology.Links{Linked: all},
		Members: []member.Facts{aMember(2, "192.0.2.2", "10.2.0.0/16"), aMember(3, "192.0.2.3", "10.2.3.0/24")}}
	in.Options.Accept = append(in.Options.Accept, netip.MustParsePrefix("10.0.0.0/8"))
	_, peers, problems := topology.Plan(in)
	for at, want := range map[string]string{"10.2.3.7": in.Members[1].ID, "10.2.4.7": in.Members[0].ID} {
		if p, ok := peers.Of(netip.MustParseAddr(at)); !ok || p.ID != want {
			t.Errorf("%s is %s's, want %s", at, p.ID, want)
		}
	}
	if len(problems) > 0 {
		t.Error(problems)
	}
	in.Links.Linked = all[:1] // the other one is no range of a linked cluster
	if _, _, problems = topology.Plan(in); len(problems) != 1 || problems[0].Kind != topology.Overlap {
		t.Error(problems)
	}
}
