// SPDX-License-Identifier: Apache-2.0

package vpn

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/conf"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/route/mapping"
	"github.com/tombolo-io/tombolo/internal/vpn/network"
)

// networks reads transfer networks. Each has room for a server and its clients, and is not larger than OpenVPN has it.
func networks(field string, texts []string, add conf.Report) (t transfer) {
	for i, text := range texts {
		path := fmt.Sprintf("%s[%d]", field, i)
		r, err := mapping.Parse("", text, "")
		if err != nil {
			add(path, "%v", err)
			continue
		}
		p, into := r.There, &t.V6
		least, most := 64, 112
		if p.Addr().Is4() {
			into, least, most = &t.V4, 16, 28
		}
		switch {
		case into.IsValid():
			add(path, "%s is the second one of its family", p)
		case p.Bits() < least || p.Bits() > most:
			add(path, "%s is not between /%d and /%d", p, least, most)
		default:
			*into = p
		}
	}
	if len(texts) == 0 {
		add(field, "there is none")
	}
	return t
}

func (t transfer) parts(of string) (out []network.Part) {
	for _, p := range t.all() {
		out = append(out, network.Part{What: "the transfer network" + of, Range: p})
	}
	return out
}

// reserved is where mapped ranges are: no cluster has addresses of it (RFC 1112 section 4).
func reserved() []network.Part {
	return []network.Part{{What: "a range that only mapped addresses may have",
		Range: netip.PrefixFrom(netip.AddrFrom4([4]byte{240}), 4)}}
}

// ranges reads those of a cluster. parts are the addresses by which they are reached.
func ranges(field, cluster string, raw []v1alpha1.RouteRange, add conf.Report) (out []mapping.Range,
	parts []network.Part) {
	for i, text := range raw {
		path := fmt.Sprintf("%s[%d]", field, i)
		r, err := mapping.Parse(cluster, text.Range, text.As)
		if err != nil {
			add(path, "%v", err)
			continue
		}
		what := path
		if r.Mapped() {
			what = fmt.Sprintf("%s (%s)", path, r.There)
		}
		out, parts = append(out, r), append(parts, network.Part{What: what, Range: r.Here})
	}
	return out, parts
}

// overlaps reports ranges that cannot be told apart, and such that nobody has.
func overlaps(field string, parts []network.Part, real []mapping.Range, add conf.Report) {
	for _, why := range network.Overlaps(parts, nil) {
		add(field, "%s: map a range of the cluster elsewhere with 'as', on both ends", why)
	}
	var there []network.Part
	for i, r := range real {
		there = append(there, network.Part{What: fmt.Sprintf("%s[%d]", field, i), Range: r.There})
	}
	for _, why := range network.Overlaps(there, reserved()) {
		add(field, "%s", why)
	}
}

// parts are what a server routes here.
func (c ServerConfig) parts() []network.Part {
	out := c.Transfer.parts("")
	for _, r := range c.Ranges {
		out = append(out, network.Part{What: "a range of cluster " + c.Cluster, Range: r.Here})
	}
	return out
}

// parts are what a client routes here.
func (c ClientConfig) parts() (out []network.Part) {
	for _, s := range c.Servers {
		out = append(out, s.transfer.parts(" of the server "+s.address)...)
	}
	for _, r := range c.Routes {
		out = append(out, network.Part{What: "a route to the server's side", Range: r})
	}
	return out
}

// dials are the hosts that the tunnels themselves dial.
func (c ClientConfig) dials() (out []string) {
	for _, r := range c.Servers {
		if r.proxy != nil {
			out = append(out, r.proxy.Host)
			continue
		}
		for _, d := range r.remotes {
			out = append(out, d.Host)
		}
	}
	return out
}

// checkRoutes reports routes into a tunnel that contain what the tunnel itself dials: it would carry its own packets.
// Names are resolved at the start.
func (c ClientConfig) checkRoutes(add conf.Report) {
	for _, host := range c.dials() {
		a, err := netip.ParseAddr(host)
		for i, route := range c.Routes {
			if err == nil && route.Contains(a.Unmap()) {
				add(fmt.Sprintf("routes[%d]", i), "%v contains %v, which the tunnel itself dials: leave that address out",
					route, a)
			}
		}
	}
}

// outside refuses what checkRoutes does of names, by the addresses that they have now. Where DNS does not answer there
// is nothing to say yet.
func (c ClientConfig) outside(ctx context.Context,
	lookup func(ctx context.Context, network, host string) ([]netip.Addr, error)) error {
	if len(c.Routes) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, resolveWait)
	defer cancel()
	for _, host := range c.dials() {
		addrs, _ := lookup(ctx, "ip", host) // OpenVPN says what is wrong with a name, again and again
		for _, a := range addrs {
			for _, route := range c.Routes {
				if route.Contains(a.Unmap()) {
					return fault.Newf(fault.CodeConfig, "the route %v contains %v, an address of %s", route, a.Unmap(), host).
						Whyf("the tunnel itself dials it, and would carry its own packets").Hint("leave that address out of routes")
				}
			}
		}
	}
	return nil
}
