// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"net"
	"net/netip"
	"regexp"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/base/plan"
)

func network(t *testing.T, text string) *net.IPNet {
	t.Helper()
	_, n, err := net.ParseCIDR(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestRulesOfOthersInWords(t *testing.T) {
	mask := uint32(0x60)
	for want, change := range map[string]func(*netlink.Rule){
		"ipv4 rule 7: from all lookup 180":                                func(*netlink.Rule) {},
		"ipv6 rule 7: from fd00::/8 lookup 180":                           func(r *netlink.Rule) { r.Family, r.Src = netlink.FAMILY_V6, network(t, "fd00::/8") },
		"ipv4 rule 0: from all to 10.0.0.0/8 lookup 180":                  func(r *netlink.Rule) { r.Priority, r.Dst = -1, network(t, "10.0.0.0/8") },
		"ipv4 rule 7: not from all fwmark 0xca6c/0xffffffff lookup 180":   func(r *netlink.Rule) { r.Invert, r.Mark = true, 0xca6c },
		"ipv4 rule 7: from all fwmark 0x0/0x60 iif lo oif eth0 blackhole": func(r *netlink.Rule) { r.Mask, r.IifName, r.OifName, r.Type = &mask, "lo", "eth0", unix.RTN_BLACKHOLE },
		"ipv4 rule 7: from all goto 9":                                    func(r *netlink.Rule) { r.Goto, r.Table = 9, 0 },
		"ipv4 rule 7: from all":                                           func(r *netlink.Rule) { r.Table = 0 },
	} {
		r := *netlink.NewRule()
		r.Family, r.Priority, r.Table = netlink.FAMILY_V4, 7, 180
		change(&r)
		if got := ruleText(r); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestRoutesOfOthersInWords(t *testing.T) {
	links := func(index int) string { return map[int]string{2: "eth0", 3: "eth1"}[index] }
	v4 := netlink.Route{Table: 180, Dst: network(t, "10.7.0.0/16")}
	with := func(change func(*netlink.Route)) netlink.Route {
		r := v4
		change(&r)
		return r
	}
	for want, c := range map[string]struct {
		route netlink.Route
		of    int
	}{
		"ipv4 route 10.7.0.0/16 dev eth0 table 180":             {with(func(r *netlink.Route) { r.LinkIndex = 2 }), netlink.FAMILY_V4},
		"ipv4 route 10.7.0.0/16 via 192.0.2.1 dev eth0 table 5": {with(func(r *netlink.Route) { r.LinkIndex, r.Table, r.Gw = 2, 5, net.IPv4(192, 0, 2, 1) }), netlink.FAMILY_V4},
		"ipv4 route unreachable 10.7.0.0/16 table 180 metric 9": {with(func(r *netlink.Route) { r.Type, r.Priority = unix.RTN_UNREACHABLE, 9 }), netlink.FAMILY_V4},
		"ipv4 route blackhole default table 180":                {with(func(r *netlink.Route) { r.Type, r.Dst = unix.RTN_BLACKHOLE, nil }), netlink.FAMILY_V4},
		"ipv6 route unreachable fd07::/64 dev eth1 table 180":   {netlink.Route{Table: 180, Dst: network(t, "fd07::/64"), Type: unix.RTN_UNREACHABLE, LinkIndex: 3}, netlink.FAMILY_V6},
		"ipv4 route 10.7.0.0/16 table 180":                      {with(func(r *netlink.Route) { r.LinkIndex = 99 }), netlink.FAMILY_V4}, // it has gone meanwhile
		"ipv4 route 10.7.0.0/16 dev eth0 via 192.0.2.1 dev eth1 table 180": {with(func(r *netlink.Route) {
			r.MultiPath = []*netlink.NexthopInfo{{LinkIndex: 2}, {LinkIndex: 3, Gw: net.IPv4(192, 0, 2, 1)}}
		}), netlink.FAMILY_V4},
	} {
		if got := routeText(c.route, c.of, links); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// odd is what a sentence must not have.
var odd = regexp.MustCompile(`  | $| [:;,]|unknown|<nil>|%!`)

func TestClashesAreSentences(t *testing.T) {
	want := plan.State{Rules: []plan.Rule{{Family: plan.IPv4, Priority: 32500, Mark: 0x40, Mask: 0x60, Table: 180}}}
	rule := func(change func(*netlink.Rule)) netlink.Rule {
		r := *netlink.NewRule()
		r.Family, r.Priority, r.Table = netlink.FAMILY_V4, 7, 254
		change(&r)
		return r
	}
	for _, c := range []struct {
		rule netlink.Rule
		want string
	}{
		{rule(func(r *netlink.Rule) { r.Mark = 0x40 }),
			"mesh_clash: ipv4 rule 7: from all fwmark 0x40/0xffffffff lookup 254: it looks at bits of the mark that the mesh uses, 0x40; choose other bits in mesh.marks, or remove it with ip rule"},
		{rule(func(r *netlink.Rule) { r.Table = 180 }),
			"mesh_clash: ipv4 rule 7: from all lookup 180: it leads into table 180, which the mesh uses; choose another mesh.table, or remove it with ip rule"},
		{rule(func(r *netlink.Rule) { r.Priority = 32500 }),
			"mesh_clash: ipv4 rule 32500: from all lookup 254: it has priority 32500, which the mesh uses; choose another mesh.rule, or remove it with ip rule"},
	} {
		faults := (&Kernel{}).ruleClashes(c.rule, want)
		if len(faults) != 1 || faults[0].Explain() != c.want {
			t.Errorf("%v, want %s", faults, c.want)
		}
	}
	for command, text := range map[string]string{
		"":            "mesh_clash: ipv4 route unreachable 10.7.0.0/16 table 254: it stands where the mesh needs a route; choose another mesh.overlay4, or remove it with ip route",
		"tombolo vpn": "kernel_clash: ipv4 route unreachable 10.7.0.0/16 table 254: it stands where 'tombolo vpn' needs a route; remove it with ip route",
	} {
		route := netlink.Route{Table: 254, Dst: network(t, "10.7.0.0/16"), Type: unix.RTN_UNREACHABLE}
		faults := (&Kernel{names: Names{Command: command}}).routeClashes([]netlink.Route{route}, netlink.FAMILY_V4,
			plan.State{Routes: []plan.Route{{Table: 254, To: netip.MustParsePrefix("10.7.0.0/16")}}})
		if len(faults) != 1 || faults[0].Explain() != text {
			t.Errorf("%v, want %s", faults, text)
		}
	}
	k := &Kernel{names: Names{Link: "tombolo0", Filter: "tombolo_mesh", Protocol: 180}}
	texts := []string{k.foreignTable().Explain(), (Names{}).tableFault("table x", unix.EEXIST).Error()}
	for _, f := range k.linkClashes([]netlink.Link{&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: "tombolo0"}}}) {
		texts = append(texts, f.Explain())
	}
	for _, on := range []plan.Object{
		plan.Link{Name: "tombolo0", MTU: 1420}, plan.TableName("t"),
		plan.Route{Table: 180, To: netip.MustParsePrefix("10.0.0.0/8")}, plan.Rule{Family: plan.IPv4, Priority: 7, Table: 180},
	} {
		texts = append(texts, (Names{}).failed(plan.Step{Verb: plan.Add, On: on}, unix.EEXIST).Error())
	}
	for _, text := range texts {
		if at := odd.FindString(text); at != "" {
			t.Errorf("%q has %q", text, at)
		}
	}
}
