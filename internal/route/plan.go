// SPDX-License-Identifier: Apache-2.0

package route

import (
	"fmt"
	"net/netip"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/plan"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel"
	"github.com/tombolo-io/tombolo/internal/route/mapping"
)

// linkMetric is that of the routes by the link. Those that refuse have a larger one: they count where the link is
// gone, as after a kill, so that nothing leaves by another way for an address that somebody else has there too.
const linkMetric = 1

// names are those in the kernel.
func (c Config) names() kernel.Names {
	return kernel.Names{Link: c.Link, Table: c.RouteTable, Protocol: kernel.Protocol, Command: "tombolo route"}
}

// want is what shall be in the kernel.
func (c Config) want() plan.State {
	out := plan.State{Links: []plan.Link{{Name: c.Link, MTU: tunMTU, Up: true}}}
	for _, a := range c.Addresses {
		out.Addresses = append(out.Addresses, plan.Address{Link: c.Link, Prefix: netip.PrefixFrom(a, a.BitLen())})
	}
	families := map[plan.Family]bool{}
	for _, r := range c.Table.Ranges() {
		out.Routes = append(out.Routes,
			plan.Route{Table: c.RouteTable, To: r.Here, Metric: linkMetric, Link: c.Link},
			plan.Route{Table: c.RouteTable, To: r.Here, Metric: plan.Refusing(c.RouteTable)})
		families[plan.FamilyOf(r.Here.Addr())] = true
	}
	for _, a := range c.Resolver {
		to := netip.PrefixFrom(a, a.BitLen())
		out.Routes = append(out.Routes,
			plan.Route{Table: c.RouteTable, To: to, Metric: linkMetric, Link: c.Link},
			plan.Route{Table: c.RouteTable, To: to, Metric: plan.Refusing(c.RouteTable)}) // questions leave by no other way
		families[plan.FamilyOf(a)] = true
	}
	for _, f := range []plan.Family{plan.IPv4, plan.IPv6} {
		if families[f] {
			out.Rules = append(out.Rules, plan.Rule{Family: f, Priority: c.Rule, Table: c.RouteTable})
		}
	}
	return out
}

// place is an address of something that this machine needs, and that must not be routed to a cluster.
type place struct {
	what string // such as: the hub h1.example.com:8443
	at   netip.Addr
}

// covered says which ranges cover what this machine needs outside of clusters.
func covered(table mapping.Table, places []place) (out []*fault.Fault) {
	for _, p := range places {
		if r, _, ok := table.There(p.at); ok {
			out = append(out, fault.Newf(fault.CodeConfig, "the range %s covers %s, which is %s", r.Here, p.what, p.at.Unmap()).
				Whyf("it would no longer be reached").
				Hint("map the range elsewhere (--map %s=RANGE, or as in the configuration), or write smaller ones", r.There))
		}
	}
	return out
}

// own is the place of an address of this machine.
func own(link string, a netip.Addr) place {
	return place{fmt.Sprintf("an address of the link %s", link), a}
}
