// SPDX-License-Identifier: Apache-2.0

package topology_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/plan"
	"github.com/tombolo-io/tombolo/internal/mesh/topology"
)

// TestPoolsThatFitNoMachine are refused without looking at one.
func TestPoolsThatFitNoMachine(t *testing.T) {
	for pool, want := range map[string]string{
		"100.112.0.0/12": "", "10.0.0.0/8": "", "172.24.0.0/30": "",
		"0.0.0.0/0": "the default route", "128.0.0.0/1": "it is", "64.0.0.0/3": "wider than /8", "127.0.0.0/8": "loopback", "224.0.0.0/8": "multicast",
		"169.254.0.0/16": "link-local", "172.24.0.0/31": "four addresses", "fd00::/64": "no IPv4 range",
	} {
		o := options()
		o.Overlay4 = netip.MustParsePrefix(pool)
		faults := o.Check()
		if want == "" && len(faults) > 0 {
			t.Errorf("%s: %v", pool, faults)
		}
		if want != "" && (len(faults) != 1 || faults[0].What != "mesh.overlay4" || want != "it is" && !strings.Contains(faults[0].Why, want)) {
			t.Errorf("%s: %v, want %q", pool, faults, want)
		}
	}
}

// TestPoolAroundWhatTheMachineNeeds: the start is refused with one that is free; where it comes
// later there is no route to the whole pool, and a problem.
func TestPoolAroundWhatTheMachineNeeds(t *testing.T) {
	const cgnat = "100.115.0.1"
	for name, c := range map[string]struct {
		change     func(*topology.Input)
		want, free string
	}{
		"nothing is there": {func(*topology.Input) {}, "", ""},
		"another link is":  {func(in *topology.Input) { in.Local.Addresses = addrs(cgnat) }, "", ""},
		"the gateway":      {func(in *topology.Input) { in.Local.Gateways = addrs(cgnat) }, "it covers 100.115.0.1, a default gateway", "100.80.0.0/12"},
		"in a wide network": {func(in *topology.Input) {
			in.Local.Gateways, in.Local.Networks = addrs(cgnat), prefixes("100.64.0.0/10")
		}, "a default gateway", "172.24.0.0/13"},
		"our own address":  {func(in *topology.Input) { in.Local.Underlay = addrs(cgnat) }, "by which this machine reaches the others", "100.80.0.0/12"},
		"a resolver":       {func(in *topology.Input) { in.Local.Resolvers = addrs(cgnat) }, "a resolver", "100.80.0.0/12"},
		"a hub":            {hub(cgnat), "the hub", "100.80.0.0/12"},
		"nothing is free":  {func(in *topology.Input) { in.Local.Gateways, in.Options.Accept = addrs(cgnat), nil }, "a default gateway", "none"},
		"there is no pool": {func(in *topology.Input) { in.Local.Gateways, in.Options.Overlay4 = addrs(cgnat), netip.Prefix{} }, "", ""},
	} {
		in := three()
		c.change(&in)
		f := topology.PoolFault(in)
		if (f != nil) != (c.want != "") || f != nil && (f.Code != fault.CodeRange || !strings.Contains(f.Why, "mesh.overlay4: ") || !strings.Contains(f.Why, c.want) || !strings.Contains(f.Next, c.free)) {
			t.Errorf("%s: %v, want %q and %q", name, f, c.want, c.free)
		}
		s, peers, problems := topology.Plan(in)
		told := slices.ContainsFunc(problems, func(p topology.Problem) bool {
			return p.Range == in.Options.Overlay4 && strings.Contains(p.Why, "mesh.overlay4")
		})
		if told != (c.want != "") {
			t.Errorf("%s: the problems are %v", name, problems)
		}
		shadows := slices.ContainsFunc(s.Routes, func(r plan.Route) bool {
			return r.Table == 254 && r.To.Contains(netip.MustParseAddr(cgnat))
		})
		if want := c.want == "" && in.Options.Overlay4.IsValid(); shadows != want {
			t.Errorf("%s: a route of ours covers it: %v", name, shadows)
		}
		for _, p := range peers {
			if w := topology.Explain(s, peers, p.Overlay4); w.Route.Link != in.Options.Link {
				t.Errorf("%s: %s goes %+v", name, p.Overlay4, w)
			}
		}
	}
}
