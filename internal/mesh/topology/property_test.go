// SPDX-License-Identifier: Apache-2.0

package topology_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/base/plan"
	"github.com/tombolo-io/tombolo/internal/mesh/topology"
)

// crowd draws members whose ranges lie in 10.0.0.0/24 and overlap much. All that they name
// begins in the first addresses of it, as many as it says: in few of them they meet often in
// what is a single address, their own in the mesh and outside of it.
func crowd(t *rapid.T) (members []member.Facts, first int) {
	first = rapid.SampledFrom([]int{8, 256}).Draw(t, "first")
	last := func(label string) byte { return byte(rapid.IntRange(0, first-1).Draw(t, label)) }
	small := func(label string, least int) []netip.Prefix {
		var out []netip.Prefix
		for range rapid.IntRange(0, 4).Draw(t, label) {
			a := netip.AddrFrom4([4]byte{10, 0, 0, last("address")})
			out = append(out, netip.PrefixFrom(a, rapid.IntRange(least, 32).Draw(t, "bits")).Masked())
		}
		return out
	}
	for n := range rapid.IntRange(1, 6).Draw(t, "members") {
		m := member.Facts{
			ID: fmt.Sprintf("m%d", n), Key: member.Key{byte(n + 1)}, Ranges: small("ranges", 24),
			Overlay6: netip.AddrFrom16([16]byte{0: 0xfd, 7: 2, 15: byte(n)}),
			Overlay4: netip.AddrFrom4([4]byte{10, 0, 0, last("overlay")}),
		}
		m.Excluded = small("excluded", 27)
		if rapid.IntRange(0, 5).Draw(t, "under") == 0 {
			m.Addresses = []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, last("underlay")})}
		}
		if rapid.IntRange(0, 5).Draw(t, "reachable") == 0 {
			m.Endpoints = endpoints(netip.AddrFrom4([4]byte{10, 0, 0, last("endpoint")}))
		}
		if rapid.IntRange(0, 9).Draw(t, "without a key") == 0 {
			m.Key = member.Key{}
		}
		members = append(members, m)
	}
	return members, first
}

// places are all addresses at which a member says that it is.
func places(m member.Facts) []netip.Addr {
	out := slices.Clone(m.Addresses)
	for _, e := range m.Endpoints {
		out = append(out, e.Addr.Addr())
	}
	return out
}

// owner is who has an address, by the rules as they are written, and whether as its own;
// or that it is disputed, with a member that says that it is there itself.
func owner(members []member.Facts, a netip.Addr) (best string, overlay, disputed bool) {
	bits := -1
	for _, m := range members { // sorted by id
		if m.Key == (member.Key{}) {
			continue
		}
		if m.Overlay4 == a && !overlay {
			best, bits, overlay = m.ID, 32, true
		}
		for _, p := range m.Ranges {
			in := func(q netip.Prefix) bool { return q.Contains(a) }
			if in(p) && !slices.ContainsFunc(m.Excluded, in) && !overlay && p.Bits() > bits {
				best, bits = m.ID, p.Bits()
			}
		}
	}
	disputed = best != "" && slices.ContainsFunc(members, func(m member.Facts) bool {
		return m.ID != best && m.Overlay4 != a && slices.Contains(places(m), a)
	})
	return best, overlay, disputed
}

func TestEveryNodeComesToTheSameOwners(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		members, first := crowd(t)
		for _, self := range members {
			in := topology.Input{Self: self, Members: rapid.Permutation(members).Draw(t, "order"), Options: options()}
			in.Options.Bypass = rapid.Bool().Draw(t, "bypass")
			in.Health = map[string]topology.Health{members[0].ID: {Down: true, MTU: 1290}}
			for _, m := range members { // who has answered, from where he says or from elsewhere
				if rapid.IntRange(0, 2).Draw(t, "answered") == 0 {
					h := in.Health[m.ID]
					h.At = append(places(m), netip.AddrFrom4([4]byte{10, 0, 0, byte(rapid.IntRange(0, first-1).Draw(t, "from"))}))
					in.Health[m.ID] = h
				}
			}
			sameOwners(t, in, members, min(2*first, 256))
		}
	})
}

// TestCrowdsThatWereDrawn are those in which the rules as they are written and the plan once
// differed.
func TestCrowdsThatWereDrawn(t *testing.T) {
	at := func(id string, overlay4 byte, key member.Key, under ...string) member.Facts {
		return member.Facts{ID: id, Key: key, Overlay4: netip.AddrFrom4([4]byte{10, 0, 0, overlay4}), Addresses: addrs(under...)}
	}
	for name, members := range map[string][]member.Facts{
		"who lost an overlay address names it, and so does another one": {
			at("m0", 0, member.Key{1}, "10.0.0.0"), at("m1", 0, member.Key{2}, "10.0.0.0"), at("m2", 1, member.Key{}, "10.0.0.0"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, self := range members {
				sameOwners(t, topology.Input{Self: self, Members: members, Options: options()}, members, 256)
			}
		})
	}
}

// sameOwners compares what a node does with the first addresses of 10.0.0.0/24, of which there
// are 256, with the rules as they are written. The members are sorted by id.
func sameOwners(t rapid.TB, in topology.Input, members []member.Facts, first int) {
	t.Helper()
	self := in.Self
	if self.Key == (member.Key{}) {
		return
	}
	s, peers, _ := topology.Plan(in)
	for i := range first {
		a := netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})
		var has []string
		for _, p := range peers {
			for _, r := range p.Allowed {
				if r.Contains(a) {
					has = append(has, p.ID)
				}
			}
		}
		want, overlay, disputed := owner(members, a)
		best := want
		theirs := want != "" && want != self.ID
		if disputed && want != self.ID {
			want = ""
		}
		if !overlay && slices.ContainsFunc(self.Excluded, func(p netip.Prefix) bool { return p.Contains(a) }) {
			want, theirs = "", false // for this node
		}
		switch {
		case want == "" || want == self.ID:
			if len(has) != 0 {
				t.Fatalf("%s is allowed to %v, want nobody (owner %q)", a, has, want)
			}
		case len(has) != 1 || has[0] != want:
			t.Fatalf("at %s: %s is allowed to %v, want %s", self.ID, a, has, want)
		}
		// This machine is where it says, and where others have answered from that say so, but
		// for what is their own address in the mesh: that it was lost to another one does not
		// put it outside.
		there := slices.ContainsFunc(members, func(m member.Facts) bool {
			says := m.Overlay4 != a && slices.Contains(places(m), a)
			return says && m.ID != best && (m.ID == self.ID || slices.Contains(in.Health[m.ID].At, a))
		})
		shut := theirs && disputed && !there
		if shut != closed(s, peers, a) {
			t.Fatalf("at %s: %s is disputed: %v; closed: %v", self.ID, a, shut, !shut)
		}
		if !shut {
			agree(t, s, peers, in, a)
		}
	}
}

// closed says whether what is sent to an address is lost.
func closed(s plan.State, peers topology.Peers, a netip.Addr) bool {
	w := topology.Explain(s, peers, a)
	return w.Mark != 0 && w.Routed && !w.ToPeer
}

// agree checks that sets, routes and peers say the same of an address.
func agree(t rapid.TB, s plan.State, peers topology.Peers, in topology.Input, a netip.Addr) {
	w := topology.Explain(s, peers, a)
	overlay := w.ToPeer && w.Peer.Overlay4 == a
	switch {
	case !w.ToPeer:
		if w.Mark != 0 {
			t.Fatalf("%s is marked, and nobody has it: %+v", a, w)
		}
	case overlay:
		if w.Mark != 0 || w.Route.Link != in.Options.Link {
			t.Fatalf("%s is an overlay address: %+v", a, w)
		}
	case in.Options.Bypass && w.Peer.Down && w.Peer.Engine.Same(in.Self.Engine):
		if w.Mark != 0 || w.Set != "down4" {
			t.Fatalf("%s of a peer that is down: %+v", a, w)
		}
	default:
		if w.Mark != in.Options.Marks.Mesh || w.Set != "routed4" || w.Route.Link != in.Options.Link || w.Route.MTU != w.Peer.MTU {
			t.Fatalf("%s: %+v", a, w)
		}
	}
	// What comes from there by the link is let in exactly if a peer has it.
	source := slices.ContainsFunc(peers, func(p topology.Peer) bool { return slices.Contains(p.Sources, netip.PrefixFrom(a, 32)) })
	if source && w.ToPeer {
		t.Fatalf("%s is allowed to %s, and a source of another", a, w.Peer.ID)
	}
	p := plan.Packet{Src: a, Dst: netip.MustParseAddr("10.1.0.1"), In: in.Options.Link, Established: true, Reply: true}
	for _, chain := range []string{"input", "forward"} {
		if v := s.Tables[0].Walk(chain, &p); (v.Do == "accept") != (w.ToPeer || source) {
			t.Fatalf("from %s: %s %v, and a peer has it: %v, or answers from it: %v", a, chain, v, w.ToPeer, source)
		}
	}
}

func TestThousandsOfRanges(t *testing.T) {
	in := topology.Input{Self: aMember(1, "192.0.2.1"), Options: options()}
	const members, each = 200, 100
	for n := range members {
		m := member.Facts{ID: fmt.Sprintf("x%03d", n), Key: member.Key{1, byte(n), 7}, Ranges: prefixes("10.0.0.0/8")}
		for k := range each {
			m.Ranges = append(m.Ranges, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(n), byte(k), 0}), 24))
		}
		in.Members = append(in.Members, m)
	}
	s, peers, problems := topology.Plan(in)
	if len(peers) != members || len(problems) < members-1 {
		t.Errorf("%d peers, %d problems", len(peers), len(problems))
	}
	set := s.Tables[0].Sets[slices.IndexFunc(s.Tables[0].Sets, func(s plan.Set) bool { return s.Name == "routed4" })]
	if joined := plan.Join(set.Ranges); len(joined) != 1 || joined[0] != plan.RangeOf(netip.MustParsePrefix("10.0.0.0/8")) {
		t.Errorf("together they are %v", joined)
	}
	more := in
	more.Members = append(slices.Clone(in.Members), member.Facts{ID: "y", Key: member.Key{9}, Ranges: prefixes("192.168.7.0/24")})
	next, _, _ := topology.Plan(more)
	const one = "change set inet tombolo_mesh routed4 ipv4 + 192.168.7.0/24\n"
	if got := plan.Print(plan.Diff(s, next)); got != one {
		t.Errorf("one member more is\n%s", got)
	}
}
