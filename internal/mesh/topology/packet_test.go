// SPDX-License-Identifier: Apache-2.0

package topology_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/base/plan"
	"github.com/tombolo-io/tombolo/internal/mesh/topology"
)

// end is one node with its plan, as its packets see it.
type end struct {
	state plan.State
	conns map[string]uint32 // marks of connections
}

func at(n byte, bypass bool, down ...string) *end {
	members := []member.Facts{
		aMember(1, "192.0.2.1", "10.244.1.0/24"), aMember(2, "192.0.2.2", "10.244.2.0/24"), aMember(3, "192.0.2.3", "10.244.3.0/24"),
	}
	in := topology.Input{Self: members[n-1], Members: members, Options: options(), Health: map[string]topology.Health{}}
	in.Options.Bypass = bypass
	for _, id := range down {
		in.Health[id] = topology.Health{Down: true}
	}
	s, _, _ := topology.Plan(in)
	return &end{s, map[string]uint32{}}
}

// becomes takes over the plan of another state of affairs, and keeps its connections.
func (e *end) becomes(o *end) { e.state = o.state }

// passes leads a packet of a connection through the node: where does it go out?
func (e *end) passes(conn, in, src, dst string) string {
	mark, known := e.conns[conn]
	p := plan.Packet{Src: netip.MustParseAddr(src), Dst: netip.MustParseAddr(dst), In: in, Conn: mark, Established: known}
	table := e.state.Tables[0]
	first := "prerouting"
	if in == "" {
		first = "output"
	}
	table.Walk(first, &p)
	e.conns[conn] = p.Conn
	p.Out = "eth0"
	if _, route, found := e.state.Lookup(p, 254); found {
		if p.Out = route.Link; p.Out == "" {
			return "lost"
		}
	}
	second := "forward"
	if in == "" {
		second = "postrouting"
	}
	if v := table.Walk(second, &p); v.Do == "drop" {
		return "dropped"
	}
	return p.Out
}

func (e *end) expect(t *testing.T, want string, packet ...string) {
	t.Helper()
	if got := e.passes(packet[0], packet[1], packet[2], packet[3]); got != want {
		t.Errorf("%q: goes out by %s, want %s", packet, got, want)
	}
}

const (
	pod1, pod2, pod3 = "10.244.1.7", "10.244.2.7", "10.244.3.7"
	link             = "tombolo0"
)

func TestWayOfPackets(t *testing.T) {
	e := at(1, false, "m2")
	e.expect(t, link, "to a peer's pod", "cni0", pod1, pod2)
	e.expect(t, link, "from this machine", "", "192.0.2.1", pod2)
	e.expect(t, link, "to an overlay address", "", "100.112.0.1", "100.112.0.2")
	e.expect(t, "eth0", "to elsewhere", "cni0", pod1, "8.8.8.8")
	e.expect(t, "eth0", "to our pod", link, pod2, pod1) // its own route is not ours to say
	e.expect(t, "dropped", "from a source of nobody", link, "10.9.9.9", pod1)
	e.expect(t, "dropped", "from our own source", link, pod1, pod1)
	e.expect(t, "dropped", "from our own address", link, "192.0.2.1", pod1)
	e.expect(t, "dropped", "from a node: the answer would go in clear", link, "192.0.2.2", pod1)
	e.expect(t, "eth0", "to a node", "cni0", pod1, "192.0.2.2")
	e.expect(t, "dropped", "through us to elsewhere", link, pod2, "8.8.8.8")
	e.expect(t, "dropped", "through us to a range that is not announced", link, pod2, "192.168.7.7")
	e.expect(t, "dropped", "through us to a third", link, pod2, pod3)
	e.expect(t, "dropped", "through us to an overlay address", link, pod2, "100.112.0.3")

	dnat := plan.Packet{Src: netip.MustParseAddr(pod2), Dst: netip.MustParseAddr(pod3), In: link, Out: link, DNAT: true}
	if v := e.state.Tables[0].Walk("forward", &dnat); v.Do != "accept" {
		t.Errorf("a service of this node leads to a third: %v", v)
	}
	answer := plan.Packet{Src: netip.MustParseAddr(pod2), Dst: netip.MustParseAddr("192.168.7.7"), In: link, Out: "eth1", Established: true}
	if v := e.state.Tables[0].Walk("forward", &answer); v.Do != "accept" {
		t.Errorf("the answer to who was masqueraded: %v", v)
	}
	for name, tc := range map[string]struct {
		p    plan.Packet
		want string
	}{
		"a node answers a pod that reached it in clear": {plan.Packet{Established: true, Reply: true}, "accept"},
		"a connection of a node, however old":           {plan.Packet{Established: true}, "drop"},
		"an error of a node":                            {plan.Packet{Related: true, Proto: 1}, "accept"},
		"what a node does beside a connection":          {plan.Packet{Related: true, Proto: 6}, "drop"},
	} {
		in, out := tc.p, tc.p
		in.Src, in.Dst, in.In, in.Out = netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr(pod1), link, "cni0"
		out.Src, out.Dst, out.Out = netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr(pod2), link
		for chain, p := range map[string]*plan.Packet{"forward": &in, "input": &in, "leaving": &out} {
			if v := e.state.Tables[0].Walk(chain, p); v.Do != tc.want {
				t.Errorf("%s, in %s: %v, want %s", name, chain, v, tc.want)
			}
		}
	}
	for _, tc := range []struct {
		src, dst, out string
		mark          uint32
		want          string
	}{
		{pod1, pod2, link, 0x40, "accept"}, {pod1, pod2, "eth0", 0x40, "drop"}, {"192.0.2.1", pod2, "eth0", 0x20, "accept"},
		{"100.112.0.1", "100.112.0.2", link, 0, "accept"}, {"192.0.2.1", "100.112.0.2", "eth0", 0, "drop"},
		{"fd10:1::1", "fd10:2::1", link, 0x40, "accept"}, {"fd10:1::1", "fd10:2::1", "eth0", 0x40, "drop"},
		{"fe80::1", "ff02::16", "eth0", 0xd4, "accept"}, {"fe80::1", "ff02::2", link, 0, "accept"}, {"2001:db8::1", "fd10:2::1", link, 0x40, "drop"},
	} {
		s, _, _ := topology.Plan(three())
		p := plan.Packet{Src: netip.MustParseAddr(tc.src), Dst: netip.MustParseAddr(tc.dst), Out: tc.out, Mark: tc.mark}
		if v := s.Tables[0].Walk("leaving", &p); v.Do != tc.want {
			t.Errorf("%+v leaves: %v", tc, v)
		}
	}
	// What has left by a link of kind xfrm meets the same look with the outer link, and what has not is lost all the same.
	for _, encrypted := range []bool{false, true} {
		in := three()
		in.Options.IPsec = true
		s, _, _ := topology.Plan(in)
		p := plan.Packet{Src: netip.MustParseAddr(pod1), Dst: netip.MustParseAddr(pod2), Out: "eth0", Mark: 0x40, IPsec: encrypted}
		if v := s.Tables[0].Walk("leaving", &p); (v.Do == "accept") != encrypted {
			t.Errorf("encrypted %v: %v", encrypted, v)
		}
	}
	for _, tc := range []struct{ in, src, dst, want string }{
		{"eth0", "192.0.2.9", "100.112.0.1", "drop"}, {"eth0", "100.112.0.2", "192.0.2.1", "drop"}, {"eth0", "2001:db8::9", "fd00:0:0:2::1", "drop"},
		{"cni0", pod1, "100.112.0.1", "accept"}, {"lo", "192.0.2.1", "100.112.0.1", "accept"}, {link, pod2, "100.112.0.1", "accept"},
		{"eth0", "192.0.2.9", "192.0.2.1", "accept"}, {link, "100.112.0.2", pod1, "accept"},
		// By the link to what this node is or announces, and nowhere else, whatever is translated later.
		{link, pod2, "192.0.2.1", "drop"}, {link, pod2, "172.17.0.1", "drop"}, {link, pod2, "10.96.0.1", "drop"}, {link, pod2, "8.8.8.8", "drop"},
		{link, pod2, pod3, "drop"}, {link, pod2, "127.0.0.1", "drop"}, {link, "192.0.2.2", pod1, "accept"},
		{link, "fd00:0:0:2::2", "fd00:0:0:2::1", "accept"}, {link, "fd00:0:0:2::2", "fd10:1::7", "drop"}, {link, "fd00:0:0:2::2", "2001:db8::1", "drop"},
	} {
		p := plan.Packet{Src: netip.MustParseAddr(tc.src), Dst: netip.MustParseAddr(tc.dst), In: tc.in}
		if v := e.state.Tables[0].Walk("arriving", &p); v.Do != tc.want {
			t.Errorf("%+v arrives: %v", tc, v)
		}
	}
	own := plan.Packet{Src: netip.MustParseAddr("192.0.2.1"), Dst: netip.MustParseAddr(pod2), Mark: 0x20, Out: "eth0"}
	if e.state.Tables[0].Walk("output", &own); own.Mark != 0x20 {
		t.Errorf("our socket's packet has mark %#x", own.Mark)
	}
	for src, want := range map[string]string{"192.0.2.1": "masquerade", pod1: "accept", "100.112.0.1": "accept"} {
		p := plan.Packet{Src: netip.MustParseAddr(src), Dst: netip.MustParseAddr(pod2), Out: link, Local: true}
		if v := e.state.Tables[0].Walk("source", &p); v.Do != want {
			t.Errorf("with source %s: %v, want %s", src, v, want)
		}
	}
}

// What other machines send into the mesh has this node's address, if their range is configured, and is dropped otherwise.
func TestMasqueradeOfOthers(t *testing.T) {
	in := three()
	in.Options.Masquerade = prefixes("10.60.1.0/24", "fd60::/64")
	s, _, _ := topology.Plan(in)
	for src, want := range map[string]string{"10.60.1.21": "masquerade", "fd60::1": "masquerade", "10.60.2.21": "accept", pod1: "accept"} {
		dst := pod2
		if strings.Contains(src, ":") {
			dst = "fd10:2::1"
		}
		p := plan.Packet{Src: netip.MustParseAddr(src), Dst: netip.MustParseAddr(dst), In: "lan", Out: link}
		if v := s.Tables[0].Walk("source", &p); v.Do != want {
			t.Errorf("from %s: %v, want %s", src, v, want)
		}
		drops := want == "accept" && src != pod1
		if v := s.Tables[0].Walk("leaving", &p); want == "accept" && (v.Do == "drop") != drops {
			t.Errorf("from %s, leaving: %v", src, v)
		}
	}
}

func TestSegmentSizes(t *testing.T) {
	in := three()
	in.Health = map[string]topology.Health{"m2": {MTU: 1300}}
	s, _, _ := topology.Plan(in)
	for _, tc := range []struct {
		chain, src, dst string
		want            int
	}{
		{"postrouting", pod1, pod3, 1368}, {"postrouting", pod1, pod2, 1248}, {"postrouting", "fd10:1::1", "fd10:2::1", 1228},
		{"postrouting", "fd10:1::1", "fd10:9::1", 1348}, {"forward", pod3, pod1, 1368}, {"forward", pod2, pod1, 1248},
		{"postrouting", "100.112.0.1", "100.112.0.2", 1248},
	} {
		p := plan.Packet{Src: netip.MustParseAddr(tc.src), Dst: netip.MustParseAddr(tc.dst), Syn: true, MSS: 1460}
		if p.Out = link; tc.chain == "forward" {
			p.In, p.Out = link, "cni0"
		}
		later, small := p, p
		later.Syn, small.MSS = false, 536
		for _, q := range []*plan.Packet{&p, &later, &small} {
			s.Tables[0].Walk(tc.chain, q)
		}
		if p.MSS != tc.want || later.MSS != 1460 || small.MSS != 536 {
			t.Errorf("%+v: %d, later %d, small %d", tc, p.MSS, later.MSS, small.MSS)
		}
	}
}

// With bypass both directions of a connection take one way, whatever each end thinks
// of the other at that time.
func TestBypassIsSymmetrical(t *testing.T) {
	a, b := at(1, true), at(2, true)
	a.expect(t, link, "up", "cni0", pod1, pod2)
	b.expect(t, "eth0", "up", link, pod1, pod2) // to the pod
	b.expect(t, link, "up", "cni0", pod2, pod1)

	a.becomes(at(1, true, "m2")) // only one end has noticed
	a.expect(t, "eth0", "down", "cni0", pod1, pod2)
	b.expect(t, "eth0", "down", "eth0", pod1, pod2)
	b.expect(t, "eth0", "down", "cni0", pod2, pod1)
	a.expect(t, link, "up", "cni0", pod1, pod2) // it began in the mesh, and waits there
	b.expect(t, link, "up", "cni0", pod2, pod1)

	b.becomes(at(2, true, "m1"))
	b.expect(t, link, "up", "cni0", pod2, pod1)
	b.expect(t, "eth0", "down too", "", "192.0.2.2", pod1)
	a.expect(t, "eth0", "down too", "eth0", "192.0.2.2", pod1)
	a.expect(t, "eth0", "down too", "cni0", pod1, "192.0.2.2")

	a.becomes(at(1, true))
	b.becomes(at(2, true))
	a.expect(t, "eth0", "down", "cni0", pod1, pod2) // it began in clear, and stays there
	b.expect(t, "eth0", "down", "cni0", pod2, pod1)
	a.expect(t, link, "up again", "cni0", pod1, pod2)
	b.expect(t, "eth0", "up again", link, pod1, pod2)
	b.expect(t, link, "up again", "cni0", pod2, pod1)

	closed := at(1, false, "m2")
	closed.expect(t, link, "down, fail closed", "cni0", pod1, pod2)
}
