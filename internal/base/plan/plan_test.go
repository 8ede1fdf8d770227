// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tombolo-io/tombolo/internal/base/plan"
)

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func ranges(texts ...string) []plan.Range {
	var out []plan.Range
	for _, t := range texts {
		if from, to, ok := strings.Cut(t, "-"); ok {
			out = append(out, plan.Range{From: netip.MustParseAddr(from), To: netip.MustParseAddr(to)})
			continue
		}
		out = append(out, plan.RangeOf(prefix(t)))
	}
	return out
}

func marking(sets ...string) plan.Chain {
	c := plan.Chain{Name: "prerouting", Hook: "prerouting", Type: "filter", Priority: -50}
	for _, s := range sets {
		c.Lines = append(c.Lines, plan.Line{plan.Named(plan.KeyDst4, s), plan.Bits(plan.KeySetMark, 0x40, 0x60), plan.Do("accept")})
	}
	return c
}

func whole() plan.State {
	return plan.State{
		Links:     []plan.Link{{Name: "tombolo0", MTU: 1420, Up: true}},
		Addresses: []plan.Address{{Link: "tombolo0", Prefix: prefix("100.112.0.7/32")}},
		Routes: []plan.Route{
			{Table: 180, To: prefix("0.0.0.0/0"), Metric: 1, Link: "tombolo0", MTU: 1420},
			{Table: 180, To: prefix("0.0.0.0/0"), Metric: 4278198272},
		},
		Rules:   []plan.Rule{{Family: plan.IPv4, Priority: 32500, Mark: 0x40, Mask: 0x60, Table: 180}},
		Sysctls: []plan.Sysctl{{Link: "tombolo0", Path: "ipv4/conf/tombolo0/rp_filter", Value: "0"}},
		Tables: []plan.Table{{
			Name:   "tombolo_mesh",
			Sets:   []plan.Set{{Name: "routed4", Family: plan.IPv4, Ranges: ranges("10.2.0.0/16", "10.1.0.1-10.1.0.6")}},
			Chains: []plan.Chain{marking("routed4"), {Name: "access"}},
		}},
	}
}

func TestStepsOfAWholeState(t *testing.T) {
	const up = `add route unreachable 0.0.0.0/0 table 180 metric 4278198272
add rule ipv4 priority 32500 mark 0x40/0x60 table 180
add table inet tombolo_mesh
add set inet tombolo_mesh routed4 ipv4
change set inet tombolo_mesh routed4 ipv4 + 10.1.0.1-10.1.0.6 10.2.0.0/16
add chain inet tombolo_mesh access
add chain inet tombolo_mesh prerouting type filter hook prerouting priority -50: daddr4 @routed4 set-mark/0x60 0x40 do accept
add link tombolo0 mtu 1420 up
add sysctl ipv4/conf/tombolo0/rp_filter = 0
add address 100.112.0.7/32 dev tombolo0
add route 0.0.0.0/0 dev tombolo0 table 180 metric 1 mtu 1420
`
	if got := plan.Print(plan.Diff(plan.State{}, whole())); got != up {
		t.Errorf("to set all up:\n%s\nwant:\n%s", got, up)
	}
	const down = `change link tombolo0 mtu 1420 down
remove table inet tombolo_mesh
remove rule ipv4 priority 32500 mark 0x40/0x60 table 180
remove route 0.0.0.0/0 dev tombolo0 table 180 metric 1 mtu 1420
remove route unreachable 0.0.0.0/0 table 180 metric 4278198272
remove address 100.112.0.7/32 dev tombolo0
remove link tombolo0 mtu 1420 up
`
	if got := plan.Print(plan.Diff(whole(), plan.State{})); got != down {
		t.Errorf("to take all down:\n%s\nwant:\n%s", got, down)
	}
	changed := whole()
	changed.Links[0].MTU, changed.Routes[0].MTU = 1380, 1380
	changed.Rules[0].Table = 181
	changed.Tables[0].Sets[0].Ranges = ranges("10.1.0.1-10.1.0.6", "10.2.0.0/17")
	changed.Tables[0].Sets = append(changed.Tables[0].Sets, plan.Set{Name: "down4", Family: plan.IPv4})
	changed.Tables[0].Chains = []plan.Chain{marking("routed4", "down4")}
	const change = `add rule ipv4 priority 32500 mark 0x40/0x60 table 181
add set inet tombolo_mesh down4 ipv4
change set inet tombolo_mesh routed4 ipv4 - 10.2.0.0/16 + 10.2.0.0/17
change chain inet tombolo_mesh prerouting type filter hook prerouting priority -50: daddr4 @routed4 set-mark/0x60 0x40 do accept; daddr4 @down4 set-mark/0x60 0x40 do accept
remove chain inet tombolo_mesh access
change link tombolo0 mtu 1380 up
change route 0.0.0.0/0 dev tombolo0 table 180 metric 1 mtu 1380
remove rule ipv4 priority 32500 mark 0x40/0x60 table 180
`
	if got := plan.Print(plan.Diff(whole(), changed)); got != change {
		t.Errorf("to change some:\n%s\nwant:\n%s", got, change)
	}
}

// A range that comes into a large set costs one element.
func TestOneRangeOfManyCostsOneElement(t *testing.T) {
	const many = 100_000
	have := plan.State{Tables: []plan.Table{{Name: "t", Sets: []plan.Set{{Name: "s", Family: plan.IPv4}}}}}
	for i := range many { // each /28 beside a gap of one
		base := netip.AddrFrom4([4]byte{10, byte(i >> 11), byte(i >> 3), byte(i&7) << 5})
		have.Tables[0].Sets[0].Ranges = append(have.Tables[0].Sets[0].Ranges, plan.RangeOf(netip.PrefixFrom(base, 28)))
	}
	count := func(steps []plan.Step) (n int) {
		for _, s := range steps {
			e := s.On.(plan.Elements)
			n += len(e.Add) + len(e.Remove)
		}
		return n
	}
	one := plan.RangeOf(prefix("10.3.3.16/28")) // adjoins its neighbours on both sides
	want := have
	want.Tables = slices.Clone(have.Tables)
	want.Tables[0].Sets = []plan.Set{{Name: "s", Family: plan.IPv4, Ranges: append(slices.Clone(have.Tables[0].Sets[0].Ranges), one)}}
	if n := count(plan.Diff(have, want)); n != 1 {
		t.Errorf("one range more costs %d elements", n)
	}
	if n := count(plan.Diff(want, have)); n != 1 {
		t.Errorf("one range less costs %d elements", n)
	}
	empty := plan.State{Tables: []plan.Table{{Name: "t", Sets: []plan.Set{{Name: "s", Family: plan.IPv4}}}}}
	steps := plan.Diff(empty, want)
	if n := count(steps); n != many+1 {
		t.Errorf("all of them cost %d elements", n)
	}
	if len(steps) < many/256 || len(steps) > many/256+2 {
		t.Errorf("all of them are %d steps", len(steps))
	}
}

// states draws states of few names, so that two have much in common.
func states(t *rapid.T, name string) plan.State {
	bit := rapid.Bool()
	var s plan.State
	for _, link := range []string{"m0", "m1"} {
		if !bit.Draw(t, name+link) {
			continue
		}
		s.Links = append(s.Links, plan.Link{Name: link, MTU: rapid.IntRange(1280, 1282).Draw(t, "mtu"), Up: bit.Draw(t, "up")})
		for _, p := range []string{"100.112.0.1/32", "fd00::1/128"} {
			if bit.Draw(t, "address") {
				s.Addresses = append(s.Addresses, plan.Address{Link: link, Prefix: prefix(p)})
			}
		}
		s.Sysctls = append(s.Sysctls, plan.Sysctl{Link: link, Path: "ipv4/conf/" + link + "/rp_filter", Value: rapid.SampledFrom([]string{"0", "1"}).Draw(t, "value")})
		if bit.Draw(t, "by link") {
			s.Routes = append(s.Routes, plan.Route{Table: 180, To: prefix("0.0.0.0/0"), Metric: uint32(len(s.Links)), Link: link, MTU: rapid.IntRange(0, 1).Draw(t, "mtu")})
		}
	}
	if bit.Draw(t, "unreachable") {
		s.Routes = append(s.Routes, plan.Route{Table: 180, To: prefix("0.0.0.0/0"), Metric: 9})
	}
	if bit.Draw(t, "rule") {
		s.Rules = append(s.Rules, plan.Rule{Family: plan.IPv4, Priority: 32500, Mark: 0x40, Mask: 0x60, Table: rapid.IntRange(180, 181).Draw(t, "table")})
	}
	if bit.Draw(t, "table") {
		s.Tables = append(s.Tables, table(t))
	}
	return s
}

func table(t *rapid.T) plan.Table {
	out := plan.Table{Name: "t"}
	var names []string
	for _, n := range []string{"a4", "b4"} {
		if !rapid.Bool().Draw(t, n) {
			continue
		}
		set := plan.Set{Name: n, Family: plan.IPv4}
		for range rapid.IntRange(0, 6).Draw(t, "ranges") {
			set.Ranges = append(set.Ranges, smallRange(t))
		}
		out.Sets = append(out.Sets, set)
		names = append(names, n)
	}
	if rapid.Bool().Draw(t, "chain") {
		chain := marking(names...)
		chain.Priority -= rapid.IntRange(0, 1).Draw(t, "priority")
		if rapid.Bool().Draw(t, "jump") {
			out.Chains = append(out.Chains, plan.Chain{Name: "access", Lines: []plan.Line{{plan.Do("drop")}}})
			chain.Lines = append(chain.Lines, plan.Line{plan.If(plan.KeyJump, "access")})
		}
		out.Chains = append(out.Chains, chain)
	}
	return out
}

func smallRange(t *rapid.T) plan.Range {
	from := rapid.IntRange(0, 200).Draw(t, "from")
	to := from + rapid.IntRange(0, 40).Draw(t, "size")
	return plan.Range{From: netip.AddrFrom4([4]byte{10, 0, 0, byte(from)}), To: netip.AddrFrom4([4]byte{10, 0, 0, byte(to)})}
}

// marked gives the sets with an address at which the marking chain of a state looks.
func marked(s plan.State, a netip.Addr) (sets []string) {
	for _, table := range s.Tables {
		for _, c := range table.Chains {
			for _, l := range c.Lines {
				for _, set := range table.Sets {
					if _, in := plan.Find(set.Ranges, a); in && l[0].Arg == "@"+set.Name {
						sets = append(sets, set.Name)
					}
				}
			}
		}
	}
	return sets
}

func routed(s plan.State, a netip.Addr) bool { return len(marked(s, a)) > 0 }

// stays says whether one set has an address in both states.
func stays(have, want plan.State, a netip.Addr) bool {
	return slices.ContainsFunc(marked(have, a), func(set string) bool { return slices.Contains(marked(want, a), set) })
}

// closed says whether a marked packet is lost or goes by a link, and not in clear.
func closed(s plan.State) bool {
	for _, r := range s.Rules {
		for _, route := range s.Routes {
			if route.Table == r.Table && (route.Link == "" || s.Links[slices.IndexFunc(s.Links, func(l plan.Link) bool { return l.Name == route.Link })].Up) {
				return true
			}
		}
	}
	return false
}

func TestDiffLeadsFromAnyStateToAnyOther(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		have, want := states(t, "have"), states(t, "want")
		now := have.Normal()
		for _, step := range plan.Diff(have, want) {
			next, err := now.With(step)
			if err != nil {
				t.Fatalf("%v\nof\n%s", err, plan.Print(plan.Diff(have, want)))
			}
			now = next
		}
		if again := plan.Diff(now, want); len(again) > 0 {
			t.Fatalf("left to do:\n%s", plan.Print(again))
		}
		if a, b := fmt.Sprint(now.Normal()), fmt.Sprint(want.Normal()); a != b {
			t.Fatalf("have %s\nwant %s", a, b)
		}
	})
}

// What both states send into the mesh by one set is sent there, or lost, after every step between;
// and nothing is marked before there is somewhere to go.
func TestNothingLeaksBetweenTwoSteps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		have, want := states(t, "have").Normal(), states(t, "want").Normal()
		var both []netip.Addr
		for i := range 256 {
			if a := netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}); stays(have, want, a) {
				both = append(both, a)
			}
		}
		shut := hasUnreachable(have) && hasUnreachable(want) && closed(have) && closed(want)
		begins := hasUnreachable(want) && closed(want) && !routedAny(have)
		now := have.Normal()
		for _, step := range plan.Diff(have, want) {
			now, _ = now.With(step)
			switch {
			case slices.ContainsFunc(both, func(a netip.Addr) bool { return !routed(now, a) }):
				t.Fatalf("a range is not marked after %q of\n%s", step, plan.Print(plan.Diff(have, want)))
			case shut && !closed(now):
				t.Fatalf("marked packets are in clear after %q of\n%s", step, plan.Print(plan.Diff(have, want)))
			case begins && routedAny(now) && !closed(now):
				t.Fatalf("marks before there is somewhere to go, after %q of\n%s", step, plan.Print(plan.Diff(have, want)))
			}
		}
	})
}

func hasUnreachable(s plan.State) bool {
	return slices.ContainsFunc(s.Routes, func(r plan.Route) bool { return r.Link == "" })
}

func routedAny(s plan.State) bool {
	for i := range 256 {
		if routed(s, netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})) {
			return true
		}
	}
	return false
}

func TestRanges(t *testing.T) {
	for _, tc := range []struct{ name, got, want string }{
		{"prefix", fmt.Sprint(plan.RangeOf(prefix("10.1.2.3/15"))), "10.0.0.0/15"},
		{"one", fmt.Sprint(plan.RangeOf(prefix("fd00::1/128"))), "fd00::1"},
		{"all", fmt.Sprint(plan.RangeOf(prefix("::/0"))), "::/0"},
		{"last", fmt.Sprint(ranges("240.0.0.0-255.255.255.255")), "[240.0.0.0/4]"},
		{"prefixes", fmt.Sprint(ranges("10.0.0.1-10.0.0.6")[0].Prefixes()), "[10.0.0.1/32 10.0.0.2/31 10.0.0.4/31 10.0.0.6/32]"},
		{"united", fmt.Sprint(plan.Unite(ranges("10.1.0.0/16", "10.0.0.0/16", "10.1.2.0/24", "fd00::/16"))), "[10.0.0.0/16 10.1.0.0/16 fd00::/16]"},
		{"joined", fmt.Sprint(plan.Join(ranges("10.1.0.0/16", "10.0.0.0/16", "10.1.2.0/24", "255.255.255.255/32", "::/128"))), "[10.0.0.0/15 255.255.255.255 ::]"},
		{"less", fmt.Sprint(plan.Less(ranges("10.0.0.0/30", "fd00::/16"), ranges("10.0.0.1/32", "fd00::/17"))), "[10.0.0.0 10.0.0.2/31 fd00:8000::/17]"},
		{"less all", fmt.Sprint(plan.Less(ranges("10.0.0.0/30"), ranges("0.0.0.0/0"))), "[]"},
	} {
		if tc.got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, tc.got, tc.want)
		}
	}
}

func TestRangesAreSetsOfAddresses(t *testing.T) {
	members := func(rs []plan.Range) (out [256]bool) {
		for _, r := range rs {
			for i := int(r.From.As4()[3]); i <= int(r.To.As4()[3]); i++ {
				out[i] = true
			}
		}
		return out
	}
	rapid.Check(t, func(t *rapid.T) {
		draw := rapid.SliceOfN(rapid.Custom(smallRange), 0, 8)
		a, b := draw.Draw(t, "a"), draw.Draw(t, "b")
		ma, mb := members(a), members(b)
		less := ma
		for i := range less {
			less[i] = less[i] && !mb[i]
		}
		if members(plan.Unite(a)) != ma || members(plan.Join(a)) != ma || members(plan.Less(a, b)) != less {
			t.Fatalf("%v less %v is %v; united %v, joined %v", a, b, plan.Less(a, b), plan.Unite(a), plan.Join(a))
		}
		for i := range ma {
			if _, in := plan.Find(plan.Unite(a), netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})); in != ma[i] {
				t.Fatalf("%d of %v", i, a)
			}
		}
		var split []plan.Range
		for _, r := range a {
			for _, p := range r.Prefixes() {
				split = append(split, plan.RangeOf(p))
			}
		}
		if members(split) != ma {
			t.Fatalf("%v as prefixes: %v", a, split)
		}
	})
}

func TestALineReadsAsItPrints(t *testing.T) {
	line := plan.Line{
		plan.Bits(plan.KeyMark, 0x20, 0x60), plan.IfNot(plan.KeyIn, "tombolo0"), plan.NotNamed(plan.KeySrc4, "routed4"),
		plan.Within(plan.KeyDst6, prefix("fd00::/8")), plan.Count(), plan.Do("drop"),
	}
	const text = "mark/0x60 0x20 in !tombolo0 saddr4 !@routed4 daddr6 fd00::/8 count packets do drop"
	if line.String() != text {
		t.Errorf("it prints %q", line)
	}
	if got, err := plan.ParseLine(text); err != nil || !reflect.DeepEqual(got, line) {
		t.Errorf("it reads %v, %v", got, err)
	}
	for _, bad := range []string{"", "do", "do accept in", "mark/x 0x20", "mark/0 0x20"} {
		if got, err := plan.ParseLine(bad); err == nil {
			t.Errorf("%q reads as %v", bad, got)
		}
	}
}

func TestWithRefusesWhatTheKernelWould(t *testing.T) {
	s := whole()
	set := plan.SetName{Table: "tombolo_mesh", Name: "routed4", Family: plan.IPv4}
	for _, step := range []plan.Step{
		{Verb: plan.Add, On: s.Rules[0]},
		{Verb: plan.Remove, On: plan.Rule{Table: 7}},
		{Verb: plan.Add, On: plan.Address{Link: "other", Prefix: prefix("10.0.0.1/32")}},
		{Verb: plan.Add, On: plan.Route{Link: "other", To: prefix("10.0.0.1/32")}},
		{Verb: plan.Remove, On: set},
		{Verb: plan.Change, On: plan.Elements{Set: set, Add: ranges("10.2.3.0/24")}},
		{Verb: plan.Change, On: plan.Elements{Set: set, Remove: ranges("10.2.3.0/24")}},
		{Verb: plan.Add, On: plan.SetName{Table: "other", Name: "x"}},
		{Verb: plan.Change, On: plan.ChainIn{Table: "tombolo_mesh", Chain: marking("nobody4")}},
	} {
		if _, err := s.With(step); err == nil {
			t.Errorf("%s is taken", step)
		}
	}
}
