// SPDX-License-Identifier: Apache-2.0

package topology_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/mesh/topology"
)

// TestNobodyOpensAnothersRange: what was a member's range, and is disputed or refused now, is
// not sent in clear, but for what this machine itself needs.
func TestNobodyOpensAnothersRange(t *testing.T) {
	says := func(a string) func(*topology.Input) {
		return func(in *topology.Input) { in.Members[0].Addresses = append(in.Members[0].Addresses, addrs(a)...) }
	}
	answers := func(a string) func(*topology.Input) {
		return func(in *topology.Input) {
			says(a)(in)
			in.Health = map[string]topology.Health{"m2": {At: addrs(a)}}
		}
	}
	here := func(change func(*topology.Local)) func(*topology.Input) {
		return func(in *topology.Input) { change(&in.Local) }
	}
	bridge := here(func(l *topology.Local) {
		l.Addresses, l.Networks = append(l.Addresses, addrs("10.244.3.129")...), prefixes("10.244.3.128/28")
	})
	for name, c := range map[string]struct {
		change func(*topology.Input)
		to     string
		want   string
		why    string // in what is told of the address
	}{
		"a member says that it is there": {says("10.244.3.9"), "10.244.3.9", "lost", "10.244.3.9/32: it says that it is there itself, and it is in 10.244.3.0/24 of node3 (m3): the address is closed"},
		"the rest is its owner's":        {says("10.244.3.9"), "10.244.3.8", "m3", ""},
		"by an endpoint":                 {func(in *topology.Input) { in.Members[0].Endpoints = endpoints(addrs("10.244.3.9")...) }, "10.244.3.9", "lost", "closed"},
		"it has a name alone":            {func(in *topology.Input) { says("10.244.3.9")(in); in.Members[0].Key = member.Key{} }, "10.244.3.9", "lost", "closed"},
		"it has answered from there":     {answers("10.244.3.9"), "10.244.3.9", "clear", "reaches it there, without the mesh"},
		"and the rest is routed":         {answers("10.244.3.9"), "10.244.3.8", "m3", ""},
		"it has answered, and says not":  {func(in *topology.Input) { in.Health = map[string]topology.Health{"m2": {At: addrs("10.244.3.9")}} }, "10.244.3.9", "m3", ""},
		"the owner says so of itself":    {func(in *topology.Input) { in.Members[1].Addresses = addrs("10.244.3.9") }, "10.244.3.9", "m3", ""},
		"of a node that is gone": {func(in *topology.Input) {
			says("10.50.0.9")(in)
			in.Closed = []topology.Closed{{ID: "m9", Ranges: prefixes("10.50.0.0/16")}}
		}, "10.50.0.9", "lost", "closed"},
		"with bypass":                {func(in *topology.Input) { says("10.244.3.9")(in); in.Options.Bypass = true }, "10.244.3.9", "lost", "closed"},
		"what this node excludes":    {func(in *topology.Input) { says("10.244.3.9")(in); in.Options.Exclude = prefixes("10.244.3.9/32") }, "10.244.3.9", "clear", ""},
		"of this node's own":         {says("10.244.1.9"), "10.244.1.9", "own", "others send nothing there"},
		"a resolver":                 {here(func(l *topology.Local) { l.Resolvers = addrs("10.244.3.53") }), "10.244.3.53", "clear", "a resolver of this node is there"},
		"what is beside a resolver":  {here(func(l *topology.Local) { l.Resolvers = addrs("10.244.3.53") }), "10.244.3.9", "m3", ""},
		"a network of this machine":  {bridge, "10.244.3.130", "clear", "it covers 10.244.3.129, an address of this machine"},
		"what is around it":          {bridge, "10.244.3.9", "lost", "it covers 10.244.3.129, an address of this machine"},
		"around how we reach others": {here(func(l *topology.Local) { l.Underlay = addrs("10.244.3.129"); l.Addresses = l.Underlay }), "10.244.3.9", "clear", "an address of this machine"},
		"around our gateway":         {here(func(l *topology.Local) { l.Gateways = addrs("10.244.3.1") }), "10.244.3.9", "clear", "a default gateway"},
		"what is not accepted":       {func(in *topology.Input) { says("10.244.3.9")(in); in.Options.Accept = nil }, "10.244.3.9", "clear", "outside of mesh.accept"},
	} {
		in := three()
		c.change(&in)
		if got := where(in, c.to); got != c.want {
			t.Errorf("%s: %s is %s, want %s", name, c.to, got, c.want)
		}
		state, peers, problems := topology.Plan(in)
		if about := strings.Join(topology.Explain(state, peers, netip.MustParseAddr(c.to)).About(nil, problems), "; "); c.why == "" && about != "" || !strings.Contains(about, c.why) {
			t.Errorf("%s: of %s is told %q, want %q", name, c.to, about, c.why)
		}
	}
}

// TestWhoAnsweredFromADisputedAddress may answer to pods from there too.
func TestWhoAnsweredFromADisputedAddress(t *testing.T) {
	in := three()
	in.Members[0].Addresses = addrs("10.244.3.9")
	in.Health = map[string]topology.Health{"m2": {At: addrs("10.244.3.9")}}
	_, peers, _ := topology.Plan(in)
	if !slices.Equal(peers[0].Sources, prefixes("10.244.3.9/32")) {
		t.Errorf("its sources are %v", peers[0].Sources)
	}
	in.Health = nil
	if _, peers, _ = topology.Plan(in); len(peers[0].Sources) != 0 {
		t.Errorf("by its word its sources are %v", peers[0].Sources)
	}
}

// TestNobodyTakesAnothersOverlayAddress by saying that it is there.
func TestNobodyTakesAnothersOverlayAddress(t *testing.T) {
	in := three()
	four, six := in.Members[1].Overlay4, in.Members[1].Overlay6
	in.Members[0].Addresses, in.Members[0].Endpoints = []netip.Addr{four, six}, endpoints(four, six)
	in.Health = map[string]topology.Health{"m2": {At: []netip.Addr{four, six}}}
	s, peers, problems := topology.Plan(in)
	if peers[1].Overlay4 != four || peers[1].Overlay6 != six || len(peers[0].Sources) != 0 || len(problems) != 0 {
		t.Errorf("they are of %+v, and the problems %v", peers, problems)
	}
	for _, a := range []netip.Addr{four, six} {
		if w := topology.Explain(s, peers, a); w.Peer.ID != "m3" || w.Route.Link != in.Options.Link {
			t.Errorf("%s goes %+v", a, w)
		}
	}
	// One that is chosen beyond the pool may be that of another one's machine: nobody has it.
	in.Members[1].Overlay4 = netip.MustParseAddr("10.60.0.1")
	in.Members[0].Addresses = addrs("10.60.0.1")
	in.Health = nil
	if _, peers, problems = topology.Plan(in); peers[1].Overlay4.IsValid() || len(problems) == 0 || where(in, "10.60.0.1") != "lost" {
		t.Errorf("%+v, %v: it is %s", peers, problems, where(in, "10.60.0.1"))
	}
	// Nor is it that of a service of this node.
	hub("10.60.0.1")(&in)
	in.Members[0].Addresses = nil
	if got := where(in, "10.60.0.1"); got != "clear" {
		t.Errorf("a hub's address is %s", got)
	}
}

// TestOnesOwnOverlayAddressIsNotOutside: a member that names its address in the mesh among
// the others says nothing by it, not for itself either when it lost it.
func TestOnesOwnOverlayAddressIsNotOutside(t *testing.T) {
	const to = "10.60.0.1" // beyond the pool: one within it is not disputed
	has := func(in *topology.Input) { in.Self.Overlay4 = netip.MustParseAddr(to) }
	names := func(in *topology.Input) { in.Self.Addresses = addrs("192.0.2.1", to) }
	disputes := func(in *topology.Input) {
		m := aMember(4, to)
		m.Key = member.Key{}
		in.Members = append(in.Members, m)
	}
	for name, c := range map[string]struct {
		changes []func(*topology.Input)
		want    string // overlay addresses of peers need no mark: clear, to the link
		peer    bool
	}{
		"another one has it":                 {nil, "clear", true},
		"this node has it too":               {[]func(*topology.Input){has}, "clear", true},
		"and names it":                       {[]func(*topology.Input){has, names}, "clear", true},
		"a third one is there":               {[]func(*topology.Input){disputes}, "lost", false},
		"where this node has it too":         {[]func(*topology.Input){disputes, has}, "lost", false},
		"where this node has it and says so": {[]func(*topology.Input){disputes, has, names}, "lost", false},
		"where this node is there as well":   {[]func(*topology.Input){disputes, names}, "clear", false},
	} {
		in := three()
		in.Self.ID, in.Members[1].ID = "m3", "m1" // the smaller id has it
		in.Members[1].Overlay4 = netip.MustParseAddr(to)
		for _, change := range c.changes {
			change(&in)
		}
		if got := where(in, to); got != c.want {
			t.Errorf("%s: it is %s, want %s", name, got, c.want)
		}
		if _, peers, _ := topology.Plan(in); peers[0].ID != "m1" || peers[0].Overlay4.IsValid() != c.peer {
			t.Errorf("%s: of the peers, %+v has it", name, peers[0])
		}
	}
}
