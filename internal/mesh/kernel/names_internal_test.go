// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"strings"
	"testing"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/plan"
)

// Of two meshes with one protocol each knows its own.
func TestWhoseItIs(t *testing.T) {
	const first, second = 2, 3 // indexes of the links
	a := Names{Link: "tombolo0", Filter: "tombolo_mesh", Table: 180, Protocol: Protocol}
	b := Names{Link: "mesh1", Filter: "second", Table: 190, Protocol: Protocol}
	nothing := Names{Protocol: Protocol}
	route := func(change func(*netlink.Route)) netlink.Route {
		r := netlink.Route{Table: unix.RT_TABLE_MAIN, Protocol: Protocol, Type: unix.RTN_UNICAST}
		change(&r)
		return r
	}
	refusing := func(table, of int) netlink.Route {
		return route(func(r *netlink.Route) {
			r.Table, r.Type, r.Priority, r.LinkIndex = table, unix.RTN_UNREACHABLE, int(plan.Refusing(of)), 1
		})
	}
	for name, c := range map[string]struct {
		route netlink.Route
		a, b  bool
	}{
		"in the table":                     {route(func(r *netlink.Route) { r.Table, r.LinkIndex = 180, first }), true, false},
		"in the table, by a renamed link":  {route(func(r *netlink.Route) { r.Table, r.LinkIndex = 190, 77 }), false, true},
		"refusing in the table":            {refusing(180, 180), true, false},
		"by the link":                      {route(func(r *netlink.Route) { r.LinkIndex = first }), true, false},
		"by the link, in another table":    {route(func(r *netlink.Route) { r.Table, r.LinkIndex = 7, second }), false, true},
		"refusing in the main table":       {refusing(unix.RT_TABLE_MAIN, 180), true, false},
		"the other one's":                  {refusing(unix.RT_TABLE_MAIN, 190), false, true},
		"refusing elsewhere":               {refusing(7, 180), false, false},
		"refusing with somebody's metric":  {route(func(r *netlink.Route) { r.Type, r.Priority = unix.RTN_UNREACHABLE, 9 }), false, false},
		"somebody's in our table":          {route(func(r *netlink.Route) { r.Table, r.Protocol = 180, unix.RTPROT_STATIC }), false, false},
		"somebody's by our link":           {route(func(r *netlink.Route) { r.LinkIndex, r.Protocol = first, unix.RTPROT_KERNEL }), false, false},
		"of our protocol, but of no names": {route(func(r *netlink.Route) { r.Table, r.LinkIndex = 7, 9 }), false, false},
	} {
		if got := a.route(c.route, by(c.route, first)); got != c.a {
			t.Errorf("%s: the first one's: %v", name, got)
		}
		if got := b.route(c.route, by(c.route, second)); got != c.b {
			t.Errorf("%s: the second one's: %v", name, got)
		}
		if nothing.route(c.route, by(c.route, 0)) {
			t.Errorf("%s: it bears no name", name)
		}
	}
	rule := func(change func(*netlink.Rule)) netlink.Rule {
		r := *netlink.NewRule()
		r.Protocol = Protocol
		change(&r)
		return r
	}
	for name, c := range map[string]struct {
		rule netlink.Rule
		a, b bool
	}{
		"into the table":             {rule(func(r *netlink.Rule) { r.Table = 180 }), true, false},
		"about the link":             {rule(func(r *netlink.Rule) { r.Table, r.IifName = unix.RT_TABLE_MAIN, "mesh1" }), false, true},
		"somebody's into our table":  {rule(func(r *netlink.Rule) { r.Table, r.Protocol = 180, 0 }), false, false},
		"of our protocol, elsewhere": {rule(func(r *netlink.Rule) { r.Table = 7 }), false, false},
	} {
		if gotA, gotB := a.rule(c.rule), b.rule(c.rule); gotA != c.a || gotB != c.b || nothing.rule(c.rule) {
			t.Errorf("%s: %v, %v", name, gotA, gotB)
		}
	}
	kept := &netlink.Wireguard{LinkAttrs: netlink.LinkAttrs{Name: "old", Alias: plan.Alias}}
	for link, want := range map[netlink.Link]bool{
		kept: true, &netlink.Wireguard{}: false, &netlink.Tuntap{}: false, &netlink.Dummy{}: false,
	} {
		if got := (Names{Former: true}).ours(link); got != want {
			t.Errorf("of a former name, type %s: %v", link.Type(), got)
		}
	}
}

func TestTablesOfOtherMeshes(t *testing.T) {
	k := &Kernel{names: Names{Filter: "f"}}
	claim := func(owner string, table int) plan.Chain {
		return plan.Claim{Owner: owner, Table: table, Link: "l"}.Chain()
	}
	const me, another = "aaaaaaaaaaaa", "bbbbbbbbbbbb"
	for name, c := range map[string]struct {
		there, want plan.Chain
		clash       bool
	}{
		"ours":                         {claim(me, 180), claim(me, 180), false},
		"ours, with another table":     {claim(me, 181), claim(me, 180), false},
		"of an owner that is lost":     {claim(another, 180), claim(me, 180), false},
		"another's":                    {claim(another, 181), claim(me, 180), true},
		"of one that says nothing":     {plan.Chain{Name: "input"}, claim(me, 180), false},
		"while we say nothing of ours": {claim(another, 181), plan.Chain{Name: "input"}, false},
	} {
		faults := k.contested([]*nftables.Chain{{Name: marker}, {Name: c.there.Name}}, plan.State{Tables: []plan.Table{{Name: "f", Chains: []plan.Chain{c.want}}}})
		if got := len(faults) == 1 && faults[0].Code == fault.CodeClash && faults[0].Next != ""; got != c.clash {
			t.Errorf("%s: %v", name, faults)
		}
	}
}

// TestWhoseCode: the code and the words of a clash are those of whoever asks.
func TestWhoseCode(t *testing.T) {
	want := plan.State{Rules: []plan.Rule{{Family: plan.IPv4, Priority: 32510, Table: 181}}}
	rule := *netlink.NewRule()
	rule.Family, rule.Priority, rule.Table = netlink.FAMILY_V4, 7, 181
	route := netlink.Route{Table: 181, Dst: network(t, "10.7.0.0/16"), Type: unix.RTN_UNREACHABLE}
	step := plan.Step{Verb: plan.Add, On: plan.Rule{Family: plan.IPv4, Priority: 7, Table: 181}}
	for command, c := range map[string]struct {
		code fault.Code
		says string
	}{
		"":              {fault.CodeClash, "the mesh"},
		"tombolo route": {fault.CodeKernelClash, "'tombolo route'"},
	} {
		k := &Kernel{names: Names{Link: "l", Filter: "f", Table: 181, Protocol: Protocol, Command: command}}
		all := k.ruleClashes(rule, want)
		all = append(all, k.routeClashes([]netlink.Route{route}, netlink.FAMILY_V4, want)...)
		all = append(all, fault.From(k.names.failed(step, unix.EEXIST)))
		for _, f := range all {
			if f.Code != c.code || !strings.Contains(f.Why+f.Next, c.says) {
				t.Errorf("%q: %s", command, f.Explain())
			}
		}
		link := &netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: "l"}}
		more := append(k.linkClashes([]netlink.Link{link}), k.foreignTable(), fault.From(k.names.tableFault("x", unix.EEXIST)))
		for _, f := range more {
			if f.Code != c.code || command != "" && strings.Contains(f.Explain(), "mesh") {
				t.Errorf("%q: %s", command, f.Explain())
			}
		}
		if len(all) != 3 || len(more) != 3 {
			t.Errorf("%q: %v, %v", command, all, more)
		}
	}
}
