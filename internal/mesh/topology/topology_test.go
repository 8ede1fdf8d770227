// SPDX-License-Identifier: Apache-2.0

package topology_test

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/base/plan"
	"github.com/tombolo-io/tombolo/internal/mesh/topology"
)

func prefixes(texts ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, t := range texts {
		out = append(out, netip.MustParsePrefix(t))
	}
	return out
}

func addrs(texts ...string) []netip.Addr {
	var out []netip.Addr
	for _, t := range texts {
		out = append(out, netip.MustParseAddr(t))
	}
	return out
}

// endpoints are a member's own, at addresses.
func endpoints(at ...netip.Addr) (out []member.Endpoint) {
	for _, a := range at {
		out = append(out, member.Endpoint{Addr: netip.AddrPortFrom(a, 51820), Kind: member.KindOwn})
	}
	return out
}

// member is one with overlay addresses by its number.
func aMember(n byte, under string, ranges ...string) member.Facts {
	return member.Facts{
		ID: fmt.Sprintf("m%d", n), Node: fmt.Sprintf("node%d", n), Key: member.Key{n},
		Overlay6: netip.AddrFrom16([16]byte{0: 0xfd, 7: 2, 15: n}), Overlay4: netip.AddrFrom4([4]byte{100, 112, 0, n}),
		Addresses: addrs(under), Ranges: prefixes(ranges...),
	}
}

func options() topology.Options {
	o := topology.Defaults()
	o.Overlay6 = netip.MustParsePrefix("fd00:0:0:2::/64")
	return o
}

func three() topology.Input {
	return topology.Input{
		Self: aMember(1, "192.0.2.1", "10.244.1.0/24", "fd10:1::/64"),
		Members: []member.Facts{
			aMember(2, "192.0.2.2", "10.244.2.0/24", "fd10:2::/64", "10.96.0.0/12"),
			aMember(3, "2001:db8::3", "10.244.3.0/24"),
		},
		Options: options(),
		Local:   topology.Local{Addresses: addrs("192.0.2.1", "10.244.1.1", "127.0.0.1", "::1"), Resolvers: addrs("192.0.2.53"), Gateways: addrs("192.0.2.254")},
	}
}

func text(s plan.State, peers topology.Peers, problems []topology.Problem) string {
	var b strings.Builder
	b.WriteString(plan.Print(plan.Diff(plan.State{}, s)))
	for _, p := range peers {
		fmt.Fprintf(&b, "peer %s %s %v sources %v mtu %d down %v\n", p.ID, p.Node, p.Allowed, p.Sources, p.MTU, p.Down)
	}
	for _, p := range problems {
		fmt.Fprintln(&b, p)
	}
	return b.String()
}

// golden compares with testdata; TOMBOLO_UPDATE_GOLDEN=1 rewrites it.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".txt")
	if os.Getenv("TOMBOLO_UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; look at it with TOMBOLO_UPDATE_GOLDEN=1 and git diff:\n%s", file, got)
	}
}

func TestWholePlans(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*topology.Input)
	}{
		{"closed", func(*topology.Input) {}},
		{"alone", func(in *topology.Input) { in.Members = nil }},
		{"bypass", func(in *topology.Input) {
			in.Options.Bypass = true
			in.Health = map[string]topology.Health{"m2": {Down: true}}
		}},
		{"mtu", func(in *topology.Input) {
			in.Health = map[string]topology.Health{"m2": {MTU: 1319}, "m3": {MTU: 1500}}
			in.Members[0].Overlay4 = netip.MustParseAddr("10.99.0.2") // outside of the pool
		}},
		{"noipv4", func(in *topology.Input) {
			in.Options.Overlay4, in.Self.Overlay4 = netip.Prefix{}, netip.Addr{}
		}},
		{"other", func(in *topology.Input) {
			in.Options.Link, in.Options.Table, in.Options.Rule, in.Options.MTU = "mesh1", 1000, 200, 1280
			in.Options.Marks = topology.Marks{Own: 0x100, Mesh: 0x200, Mask: 0xf00}
		}},
		{"access", func(in *topology.Input) {
			in.Access = &topology.Access{
				Sets: []plan.Set{{Name: "a0_4", Family: plan.IPv4, Ranges: []plan.Range{plan.RangeOf(netip.MustParsePrefix("10.244.3.0/24"))}}},
				Lines: []plan.Line{{plan.Named(plan.KeySrc4, "a0_4"), plan.If(plan.KeyProto, "6"), plan.If(plan.KeyPort, "443"),
					plan.Do("accept")}},
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := three()
			tc.change(&in)
			s, peers, problems := topology.Plan(in)
			golden(t, tc.name, text(s, peers, problems))
			again, _, _ := topology.Plan(in)
			if steps := plan.Diff(s, again); len(steps) != 0 {
				t.Errorf("a second time: %s", plan.Print(steps))
			}
		})
	}
}

func TestRangesThatAreRefused(t *testing.T) {
	// 10.2.0.0/16 without 10.2.7.7.
	const around = "10.2.0.0/22 10.2.4.0/23 10.2.6.0/24 10.2.7.0/30 10.2.7.4/31 10.2.7.6/32 10.2.7.8/29 10.2.7.16/28 10.2.7.32/27 " +
		"10.2.7.64/26 10.2.7.128/25 10.2.8.0/21 10.2.16.0/20 10.2.32.0/19 10.2.64.0/18 10.2.128.0/17"
	for _, tc := range []struct {
		name   string
		change func(*topology.Input)
		want   string // of the problem; empty: none
		left   string // what member 2 is allowed, without its overlay addresses
	}{
		{"a pod range", func(in *topology.Input) {}, "", "10.2.0.0/16"},
		{"the default route", ranged("0.0.0.0/0"), "refused of node2 (m2): 0.0.0.0/0: it is the default route", ""},
		{"that of IPv6", ranged("::/0"), "refused of node2 (m2): ::/0: it is the default route", ""},
		{"half of everything", ranged("0.0.0.0/1"), "it is this network, or covers it", ""},
		{"loopback", ranged("127.0.0.0/24"), "it is loopback, or covers it", ""},
		{"link-local", ranged("fe80::/64"), "it is link-local, or covers it", ""},
		{"multicast", ranged("224.1.0.0/16"), "it is multicast, or covers it", ""},
		{"a public range", ranged("8.8.8.0/24"), "it is outside of mesh.accept", ""},
		{"more than is accepted", ranged("172.0.0.0/8"), "it is outside of mesh.accept", ""},
		{"a public range that is accepted", func(in *topology.Input) {
			ranged("8.8.8.0/24")(in)
			in.Options.Accept = prefixes("8.0.0.0/8")
		}, "", "8.8.8.0/24"},
		{"an address of a third", func(in *topology.Input) { in.Members[1].Addresses = addrs("10.2.7.7") },
			"refused of node3 (m3): 10.2.7.7/32: it says that it is there itself, and it is in 10.2.0.0/16 of node2 (m2): the address is closed", around},
		{"an endpoint of a third", func(in *topology.Input) { in.Members[1].Endpoints = endpoints(addrs("::ffff:10.2.7.7")...) }, "10.2.7.7/32: it says that it is there itself", around},
		{"a third, as others saw it", func(in *topology.Input) {
			in.Members[1].Endpoints = endpoints(addrs("10.2.7.7")...)
			in.Members[1].Endpoints[0].Kind = member.KindObserved
		}, "", "10.2.0.0/16"},
		{"an endpoint of its own", func(in *topology.Input) { in.Members[0].Addresses = addrs("10.2.7.7") }, "", "10.2.0.0/16"},
		{"an endpoint of ours", func(in *topology.Input) { in.Self.Addresses = addrs("10.2.7.7") }, "this node reaches it there, without the mesh", around},
		{"an endpoint of one without a key", func(in *topology.Input) {
			in.Members[1].Addresses, in.Members[1].Key = addrs("::ffff:10.2.7.7"), member.Key{}
		}, "10.2.7.7/32: it says that it is there itself", around},
		{"a link of this machine", func(in *topology.Input) { in.Local.Addresses = addrs("10.2.7.7") }, "it covers 10.2.7.7, an address of this machine", ""},
		{"our resolver", func(in *topology.Input) { in.Local.Resolvers = addrs("10.2.7.7") }, "10.2.7.7/32: a resolver of this node is there", around},
		{"our gateway", func(in *topology.Input) { in.Local.Gateways = addrs("fe80::1%eth0", "10.2.7.7") }, "a default gateway of this machine", ""},
		{"a bridge of ours in our own range", func(in *topology.Input) {
			in.Self.Ranges, in.Local.Addresses = prefixes("10.2.7.0/24"), addrs("10.2.7.1")
			in.Self.Overlay4 = netip.Addr{}
		}, "overlap of node2 (m2): 10.2.0.0/16: 10.2.7.0/24 of node1 (m1) counts before it",
			"10.2.0.0/22 10.2.4.0/23 10.2.6.0/24 10.2.8.0/21 10.2.16.0/20 10.2.32.0/19 10.2.64.0/18 10.2.128.0/17"},
		{"a bridge of ours in a wider range of ours", func(in *topology.Input) {
			in.Self.Ranges, in.Local.Addresses = prefixes("10.0.0.0/8"), addrs("10.2.7.1")
		}, "it covers 10.2.7.1, an address of this machine", ""},
		{"what it excludes itself", func(in *topology.Input) { in.Members[0].Excluded = prefixes("10.2.128.0/17") }, "", "10.2.0.0/17"},
		{"what we exclude", func(in *topology.Input) { in.Options.Exclude = prefixes("10.2.0.0/17") }, "", "10.2.128.0/17"},
		{"what we exclude as we announce it", func(in *topology.Input) { in.Self.Excluded = prefixes("10.0.0.0/8") }, "", ""},
		{"the same as a smaller id", func(in *topology.Input) { in.Self.Ranges = prefixes("10.2.0.0/16") },
			"overlap of node2 (m2): 10.2.0.0/16: 10.2.0.0/16 of node1 (m1) counts before it", ""},
		{"the same as a greater id", func(in *topology.Input) { in.Members[1].Ranges = prefixes("10.2.0.0/16") },
			"overlap of node3 (m3): 10.2.0.0/16: 10.2.0.0/16 of node2 (m2) counts before it", "10.2.0.0/16"},
		{"less specific than a greater id", func(in *topology.Input) { in.Members[1].Ranges = prefixes("10.2.0.0/17") },
			"overlap of node2 (m2): 10.2.0.0/16: 10.2.0.0/17 of node3 (m3) counts before it", "10.2.128.0/17"},
		{"a hole in the winner's", func(in *topology.Input) {
			in.Members[1].Ranges, in.Members[1].Excluded = prefixes("10.2.0.0/17"), prefixes("10.2.0.0/18")
		}, "overlap of node2 (m2)", "10.2.0.0/18 10.2.128.0/17"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := three()
			in.Members[0].Ranges, in.Members[1].Ranges, in.Self.Ranges = prefixes("10.2.0.0/16"), nil, nil
			tc.change(&in)
			s, peers, problems := topology.Plan(in)
			if got := fmt.Sprint(problems); tc.want == "" && len(problems) > 0 || !strings.Contains(got, tc.want) {
				t.Errorf("problems %s, want %q", got, tc.want)
			}
			for _, p := range problems {
				if f := p.Fault(); f.Code != fault.CodeRange || f.Next == "" {
					t.Errorf("%s is the fault %v", p, f.Explain())
				}
			}
			var left []string
			for _, p := range peers[0].Allowed {
				if p.Addr() != peers[0].Overlay4 && p.Addr() != peers[0].Overlay6 {
					left = append(left, p.String())
				}
			}
			if got := strings.Join(left, " "); got != tc.left {
				t.Errorf("allowed is %q, want %q", got, tc.left)
			}
			for _, p := range peers {
				for _, r := range p.Allowed {
					w := topology.Explain(s, peers, r.Addr())
					if w.Peer.ID != p.ID || w.Route.Link != "tombolo0" {
						t.Errorf("%s goes %+v", r, w)
					}
				}
			}
		})
	}
}

func ranged(texts ...string) func(*topology.Input) {
	return func(in *topology.Input) { in.Members[0].Ranges = prefixes(texts...) }
}

func TestMembersWithTheSameKey(t *testing.T) {
	in := three()
	in.Members[1].Key = in.Members[0].Key
	_, peers, problems := topology.Plan(in)
	if len(peers) != 1 || peers[0].ID != "m2" || len(problems) != 1 || problems[0].Kind != topology.Twice || problems[0].Fault().Code != fault.CodeSelf || !strings.Contains(problems[0].Why, "node2 (m2)") {
		t.Errorf("two with one key: peers %v, problems %v", peers, problems)
	}
	in = three()
	in.Self.ID = "m9"
	in.Members[0].Key = in.Self.Key
	_, peers, problems = topology.Plan(in)
	if len(peers) != 1 || peers[0].ID != "m3" || len(problems) == 0 || problems[0].Kind != topology.Self || problems[0].Fault().Code != fault.CodeSelf {
		t.Errorf("one with our key: peers %v, problems %v", peers, problems)
	}
	in = three()
	in.Members = append(in.Members, in.Self) // this node, as the roster has it
	in.Members[1].Key = member.Key{}
	if _, peers, problems = topology.Plan(in); len(peers) != 1 || len(problems) != 0 {
		t.Errorf("without a key: peers %v, problems %v", peers, problems)
	}
}

func TestOverlayAddressesInConflict(t *testing.T) {
	in := three()
	in.Members[1].Overlay4 = in.Members[0].Overlay4
	in.Members[1].Ranges = append(in.Members[1].Ranges, netip.PrefixFrom(in.Members[0].Overlay6, 128))
	_, peers, problems := topology.Plan(in)
	if peers[0].Overlay4 != in.Members[0].Overlay4 || peers[1].Overlay4.IsValid() || peers[0].Overlay6 != in.Members[0].Overlay6 {
		t.Errorf("peers %+v", peers)
	}
	if len(problems) != 2 {
		t.Errorf("problems %v", problems)
	}
	in.Members[0].Overlay6 = netip.MustParseAddr("2001:db8::3") // of the third's underlay
	if _, peers, _ = topology.Plan(in); peers[0].Overlay6.IsValid() {
		t.Errorf("peers %+v", peers)
	}
}

func TestOptionsThatCannotWork(t *testing.T) {
	if faults := options().Check(); len(faults) != 0 {
		t.Errorf("the defaults: %v", faults)
	}
	for _, tc := range []struct {
		change func(*topology.Options)
		want   string
	}{
		{func(o *topology.Options) { o.MTU = 1279 }, "mesh.mtu"},
		{func(o *topology.Options) { o.MTU = 65536 }, "mesh.mtu"},
		{func(o *topology.Options) { o.Marks.Mesh = 0x60 }, "mesh.marks"},
		{func(o *topology.Options) { o.Marks.Own = 0 }, "mesh.marks"},
		{func(o *topology.Options) { o.Marks.Mask = 0x40 }, "mesh.marks"},
		{func(o *topology.Options) { o.Table = 254 }, "mesh.table"},
		{func(o *topology.Options) { o.Table = 0 }, "mesh.table"},
		{func(o *topology.Options) { o.Rule = 32765 }, "mesh.rule"},
		{func(o *topology.Options) { o.Link = "a-name-of-16-char" }, "mesh.link"},
		{func(o *topology.Options) { o.Overlay4 = netip.MustParsePrefix("100.112.0.0/31") }, "mesh.overlay4"},
		{func(o *topology.Options) { o.Accept = prefixes("224.0.0.0/8") }, "mesh.accept"},
	} {
		o := options()
		tc.change(&o)
		faults := o.Check()
		if len(faults) != 1 || faults[0].What != tc.want {
			t.Errorf("%v, want one of %s", faults, tc.want)
		}
	}
}

func TestExplain(t *testing.T) {
	in := three()
	in.Health = map[string]topology.Health{"m3": {Down: true}}
	var b strings.Builder
	for _, bypass := range []bool{false, true} {
		in.Options.Bypass = bypass
		s, peers, _ := topology.Plan(in)
		for _, a := range []string{"::ffff:10.244.2.7", "10.244.3.7", "100.112.0.2", "100.112.0.99", "fd10:2::5", "8.8.8.8", "10.244.1.5", "100.112.0.1"} {
			fmt.Fprintf(&b, "# %s, bypass %v\n%s\n", a, bypass, topology.Explain(s, peers, netip.MustParseAddr(a)))
		}
	}
	golden(t, "explain", b.String())
}

// What this node announces itself is judged by the same rules.
func TestOurOwnRangesAreRefusedToo(t *testing.T) {
	in := three()
	in.Self.Ranges = prefixes("0.0.0.0/0", "192.0.2.0/24", "10.244.1.0/24")
	_, _, problems := topology.Plan(in)
	if len(problems) != 2 || problems[0].Member != "m1" || problems[1].Member != "m1" || problems[0].Kind != topology.Refused {
		t.Errorf("%v", problems)
	}
}

func TestPathsNarrowerThanIPv6Allows(t *testing.T) {
	in := three()
	in.Health = map[string]topology.Health{"m2": {MTU: 1200}, "m3": {MTU: 1419}}
	if _, peers, _ := topology.Plan(in); peers[0].MTU != 1280 || peers[1].MTU != 1400 {
		t.Errorf("%d, %d", peers[0].MTU, peers[1].MTU)
	}
}

// What others see as an endpoint is no source.
func TestSourcesOfAPeer(t *testing.T) {
	in := three()
	in.Members[0].Endpoints = endpoints(addrs("203.0.113.9")...)
	in.Members[1].Addresses = addrs("192.0.2.2", "192.0.2.1", "192.0.2.3", "127.0.0.1", "::ffff:192.0.2.3", "192.0.2.3")
	_, peers, problems := topology.Plan(in)
	if got := fmt.Sprint(peers[0].Sources, peers[1].Sources, problems); got != "[192.0.2.2/32] [192.0.2.3/32] []" {
		t.Errorf("sources %s", got)
	}
}

func TestPeersAreSorted(t *testing.T) {
	in := three()
	slices.Reverse(in.Members)
	_, peers, _ := topology.Plan(in)
	if len(peers) != 2 || peers[0].ID != "m2" || peers[1].ID != "m3" {
		t.Errorf("%v", peers)
	}
	if p, ok := peers.Of(netip.MustParseAddr("10.244.3.9")); !ok || p.ID != "m3" {
		t.Errorf("%v", p)
	}
}

// Every line that drops counts, and has a reason that can be told.
func TestWhatIsDroppedHasAReason(t *testing.T) {
	in := three()
	in.Options.Bypass = true
	in.Access = &topology.Access{Lines: []plan.Line{{plan.If(plan.KeyProto, "6"), plan.Count(), plan.Do("drop")}}}
	s, _, _ := topology.Plan(in)
	reasons := map[string]int{}
	for _, c := range s.Tables[0].Chains {
		for _, l := range c.Lines {
			drops := l[len(l)-1] == plan.Do("drop")
			if reason := topology.Reason(c.Name, l); reason != "" != drops || drops && !slices.Contains(l, plan.Count()) {
				t.Errorf("%s: %s: %q", c.Name, l, reason)
			} else if drops {
				reasons[reason]++
			}
		}
	}
	if want := map[string]int{"policy": 2, "transit": 1, "destination": 6, "source": 4, "clear": 11}; fmt.Sprint(reasons) != fmt.Sprint(want) {
		t.Errorf("reasons %v", reasons)
	}
	if reason := topology.Reason("input", plan.Line{plan.Do("drop")}); reason != "other" {
		t.Errorf("a line of nobody: %q", reason)
	}
}
