// SPDX-License-Identifier: Apache-2.0

package kerneltest

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/plan"
)

// Subject is a kernel, and another program that makes links in it.
type Subject interface {
	Observe() (plan.State, error)
	Apply([]plan.Step) error
	Check(plan.State) []*fault.Fault
	Make(link string) error
	Lose(link string) error
}

// Link is the name that subjects look after.
const Link = "tombolo0"

// Contract holds for every kernel. Each part gets a fresh one.
func Contract(t *testing.T, fresh func(t *testing.T) Subject) {
	for name, part := range map[string]func(*testing.T, func(*testing.T) Subject){
		"what is applied is there":             reached,
		"nothing is left":                      removed,
		"an end at any step is mended":         mended,
		"the link is lost and comes back":      lost,
		"what is gone already is no failure":   gone,
		"nothing stands in the way of our own": unopposed,
	} {
		t.Run(name, func(t *testing.T) { part(t, fresh) })
	}
}

func reached(t *testing.T, fresh func(*testing.T) Subject) {
	k := begun(t, fresh(t))
	for _, want := range []plan.State{State(1), State(2), State(1), {Links: State(1).Links}} {
		reach(t, k, want)
	}
}

func removed(t *testing.T, fresh func(*testing.T) Subject) {
	k := begun(t, fresh(t))
	reach(t, k, State(2))
	reach(t, k, plan.State{})
	empty(t, k)
}

func empty(t *testing.T, k Subject) {
	t.Helper()
	if left := plan.Diff(plan.State{}, observed(t, k)); len(left) != 0 {
		t.Errorf("left:\n%s", plan.Print(left))
	}
}

func mended(t *testing.T, fresh func(*testing.T) Subject) {
	for _, way := range [][2]plan.State{{{}, State(1)}, {State(1), State(2)}, {State(2), {}}} {
		for n := 0; ; n++ {
			k := begun(t, fresh(t))
			if len(way[0].Links) > 0 {
				reach(t, k, way[0])
			}
			steps := plan.Diff(observed(t, k), way[1])
			if n > len(steps) {
				break
			}
			if err := k.Apply(steps[:n]); err != nil {
				t.Fatalf("%d of\n%s%v", n, plan.Print(steps), err)
			}
			reach(t, k, way[1])
		}
	}
}

func lost(t *testing.T, fresh func(*testing.T) Subject) {
	k := begun(t, fresh(t))
	reach(t, k, State(2))
	if err := k.Lose(Link); err != nil {
		t.Fatal(err)
	}
	for _, step := range plan.Diff(observed(t, k), State(2)) {
		route, ok := step.On.(plan.Route)
		switch step.On.(type) {
		case plan.Link, plan.Address, plan.Sysctl:
			ok = true
		}
		if !ok || route.To.IsValid() && route.Link == "" {
			t.Errorf("lost with the link: %s", step)
		}
	}
	if err := k.Apply(plan.Diff(observed(t, k), State(2))); !fault.Has(err, fault.CodeNotFound) {
		t.Errorf("without a link: %v", err)
	}
	begun(t, k)
	reach(t, k, State(2))
}

func gone(t *testing.T, fresh func(*testing.T) Subject) {
	k := begun(t, fresh(t))
	reach(t, k, State(1))
	steps := plan.Diff(observed(t, k), plan.State{})
	if err := k.Lose(Link); err != nil {
		t.Fatal(err)
	}
	// the first sets the link down
	removals := slices.DeleteFunc(steps, func(s plan.Step) bool { return s.Verb != plan.Remove })
	if err := k.Apply(removals); err != nil {
		t.Fatal(err)
	}
	empty(t, k)
}

func unopposed(t *testing.T, fresh func(*testing.T) Subject) {
	k := fresh(t)
	if faults := k.Check(State(1)); len(faults) != 0 {
		t.Errorf("before: %v", faults)
	}
	reach(t, begun(t, k), State(1))
	if faults := k.Check(State(2)); len(faults) != 0 {
		t.Errorf("after: %v", faults)
	}
}

func begun(t *testing.T, k Subject) Subject {
	t.Helper()
	if err := k.Make(Link); err != nil {
		t.Fatal(err)
	}
	return k
}

func observed(t *testing.T, k Subject) plan.State {
	t.Helper()
	s, err := k.Observe()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// reach leads to a state, and checks that nothing is left to do.
func reach(t *testing.T, k Subject, want plan.State) {
	t.Helper()
	steps := plan.Diff(observed(t, k), want)
	if err := k.Apply(steps); err != nil {
		t.Fatalf("%v\nof\n%s", err, plan.Print(steps))
	}
	if left := plan.Diff(observed(t, k), want); len(left) != 0 {
		t.Fatalf("left to do:\n%sof\n%s", plan.Print(left), plan.Print(steps))
	}
}

// State is one with everything in it; two numbers have much in common.
func State(n int) plan.State {
	p := netip.MustParsePrefix
	s := plan.State{
		Links:     []plan.Link{{Name: Link, MTU: 1280 + n, Up: true}},
		Addresses: []plan.Address{{Link: Link, Prefix: p("100.112.0.1/32")}, {Link: Link, Prefix: p("fd00:0:0:2::1/128")}},
		Sysctls: []plan.Sysctl{
			{Link: Link, Path: "ipv4/conf/" + Link + "/rp_filter", Value: "0"},
			{Link: Link, Path: "ipv4/conf/" + Link + "/src_valid_mark", Value: "1"},
			{Link: Link, Path: "ipv6/conf/" + Link + "/disable_ipv6", Value: "0"},
		},
		Rules: []plan.Rule{
			{Family: plan.IPv4, Priority: 32499 + n, Mark: 0x40, Mask: 0x60, Table: 180},
			{Family: plan.IPv4, Priority: 32500, In: Link, Mark: 0x60, Mask: 0x60, Table: 254},
			{Family: plan.IPv4, Priority: 32501, Mark: 0x60, Mask: 0x60, Table: 180},
			{Family: plan.IPv6, Priority: 32500, Mark: 0x40, Mask: 0x60, Table: 180},
		},
	}
	for _, to := range []string{"0.0.0.0/0", "::/0", "10.7.0.0/16"} {
		s.Routes = append(s.Routes,
			plan.Route{Table: 180, To: p(to), Metric: 1, Link: Link, MTU: 1270 + n},
			plan.Route{Table: 180, To: p(to), Metric: 4278198272})
	}
	s.Routes = append(s.Routes, plan.Route{Table: 1000 + n, To: p("fd07::/64"), Metric: 1, Link: Link},
		plan.Route{Table: 254, To: p("100.112.0.0/12"), Metric: 1, Link: Link})
	s.Tables = []plan.Table{filter(n)}
	return s
}

func filter(n int) plan.Table {
	r := func(s string) plan.Range { return plan.RangeOf(netip.MustParsePrefix(s)) }
	odd := plan.Range{From: netip.MustParseAddr("10.9.0.1"), To: netip.MustParseAddr("10.9.0.6")}
	t := plan.Table{Name: "tombolo_mesh", Sets: []plan.Set{
		{Name: "routed4", Family: plan.IPv4, Ranges: []plan.Range{r("10.1.0.0/16"), r("10.2.0.0/16"), odd, r("240.0.0.0/4")}},
		{Name: "routed6", Family: plan.IPv6, Ranges: []plan.Range{r("fd07::/64")}},
		{Name: "empty6", Family: plan.IPv6},
	}}
	accept := plan.Do("accept")
	in := plan.If(plan.KeyIn, Link)
	t.Chains = []plan.Chain{
		{Name: "access", Lines: []plan.Line{
			{plan.If(plan.KeyState, "established,related"), accept},
			{plan.If(plan.KeyState, "established"), plan.If(plan.KeyWay, "reply"), accept},
			{plan.Within(plan.KeySrc4, netip.MustParsePrefix("10.1.0.0/16")), plan.If(plan.KeyProto, "6"),
				plan.If(plan.KeyPort, "443"), accept},
			{plan.Within(plan.KeyDst6, netip.MustParsePrefix("fd07::/64")), plan.If(plan.KeyProto, "17"),
				plan.If(plan.KeyPort, "1000-2000"), plan.Do("return")},
			{plan.IfNot(plan.KeyOut, Link), plan.If(plan.KeyIPsec, "out"), accept},
			{plan.Count(), plan.Do("drop")},
		}},
		{Name: "prerouting", Hook: "prerouting", Type: "filter", Priority: -50, Lines: []plan.Line{
			{plan.Bits(plan.KeyMark, 0x20, 0x60), accept},
			{plan.IfNot(plan.KeyIn, Link), plan.Bits(plan.KeyConn, 0, 0x60), plan.If(plan.KeyState, "new"),
				plan.Bits(plan.KeySetConn, 0x40, 0x60)},
			{plan.Named(plan.KeyDst4, "routed4"), plan.Bits(plan.KeySetMark, 0x40, 0x60), accept},
			{plan.Named(plan.KeyDst6, "routed6"), plan.Bits(plan.KeySetMark, 0x40, 0x60), accept},
		}},
		{Name: "output", Hook: "output", Type: "route", Priority: -50, Lines: []plan.Line{
			{plan.If(plan.KeyOut, "lo"), accept},
			{plan.Named(plan.KeyDst4, "routed4"), plan.Bits(plan.KeySetMark, 0x40, 0x60), accept}}},
		{Name: "forward", Hook: "forward", Type: "filter", Priority: n, Lines: []plan.Line{
			{in, plan.If(plan.KeyFamily, "4"), plan.If(plan.KeySyn, "syn"), plan.If(plan.KeyMSS, "1368")},
			{in, plan.If(plan.KeyOut, Link), plan.IfNot(plan.KeyStatus, "dnat"), plan.Do("drop")},
			{in, plan.NotNamed(plan.KeySrc4, "routed4"), plan.Count(), plan.Do("drop")},
			{in, plan.If(plan.KeyJump, "access")},
		}},
		{Name: "source", Hook: "postrouting", Type: "nat", Priority: 100, Lines: []plan.Line{
			{plan.If(plan.KeyOut, Link), plan.NotNamed(plan.KeySrc6, "routed6"), plan.If(plan.KeyOwner, "local"),
				plan.Do("masquerade")},
			{plan.Named(plan.KeySrc4, "routed4"), plan.Do("keep")}, {plan.Named(plan.KeySrc6, "routed6"), plan.Do("keep")}}},
		{Name: "moved", Hook: "postrouting", Type: "filter", Priority: 200, Lines: []plan.Line{
			{plan.Named(plan.KeyDst4, "routed4"), plan.Within(plan.KeySrc4, netip.MustParsePrefix("10.8.0.0/13")),
				plan.If(plan.KeyMoveSrc, "240.8.0.0/13")},
			{plan.Within(plan.KeyDst6, netip.MustParsePrefix("fd01::/64")), plan.If(plan.KeyMoveDst, "fd02::/64")},
			{plan.Within(plan.KeyAboutDst4, netip.MustParsePrefix("10.8.0.0/13")),
				plan.If(plan.KeyMoveAboutDst, "240.8.0.0/13")},
			{plan.Within(plan.KeyAboutSrc6, netip.MustParsePrefix("fd01::/64")),
				plan.If(plan.KeyMoveAboutSrc, "fd02::/64")}}},
	}
	if n == 2 {
		t.Sets[0].Ranges = []plan.Range{r("10.1.0.0/17"), r("10.2.0.0/15"), odd}
		t.Sets[2] = plan.Set{Name: "full4", Family: plan.IPv4, Ranges: []plan.Range{r("0.0.0.0/8"), r("255.255.255.255/32")}}
		t.Chains[1].Lines = t.Chains[1].Lines[:3]
		t.Chains = append(t.Chains[:2:2],
			append(t.Chains[3:], plan.Chain{Name: "input", Hook: "input", Type: "filter", Lines: []plan.Line{
				{in, plan.Named(plan.KeySrc4, "full4"), plan.Do("drop")}}})...)
	}
	return t
}
