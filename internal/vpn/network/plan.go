// SPDX-License-Identifier: Apache-2.0

// Package network decides what a tunnel of OpenVPN needs in the kernel: addresses, routes, and rules of nftables. It
// finds ranges that cannot be told apart. It changes nothing.
package network

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"github.com/tombolo-io/tombolo/internal/base/plan"
	"github.com/tombolo-io/tombolo/internal/route/mapping"
)

// Tunnel is one end of a tunnel.
type Tunnel struct {
	Link, Filter string // names of the TUN device and of the table of nftables
	Table, Rule  int    // of routes, and the priority of the rule that leads into it
	MTU          int
	Addresses    []netip.Prefix // own ones, with the lengths of the transfer networks
	// Routed are reached through the tunnel, by their addresses here.
	Routed []netip.Prefix
	// Served may be reached from the tunnel. With another address here (Range.Here) a destination is translated.
	Served []mapping.Range
}

// The priorities of chains (NF_IP_PRI).
const (
	atMangle    = -150
	atDNAT      = -100
	atFilter    = 0
	atSourceNAT = 100
)

// headers of TCP and IP, by family, of a segment's size.
const (
	headers4 = 40
	headers6 = 60
)

// linkMetric is that of the routes by the link. Those that refuse have a larger one, and count where the link is gone:
// nothing leaves by another way for an address that somebody else has there too.
const linkMetric = 1

const established = "established,related"

func families() []plan.Family { return []plan.Family{plan.IPv4, plan.IPv6} }

// State is what shall be in the kernel.
func (t Tunnel) State() plan.State {
	out := plan.State{Links: []plan.Link{{Name: t.Link, MTU: t.MTU, Up: true}}}
	for _, a := range t.Addresses {
		out.Addresses = append(out.Addresses, plan.Address{Link: t.Link, Prefix: a})
	}
	ruled := map[plan.Family]bool{}
	for _, r := range t.Routed {
		out.Routes = append(out.Routes, plan.Route{Table: t.Table, To: r, Metric: linkMetric, Link: t.Link},
			plan.Route{Table: t.Table, To: r, Metric: plan.Refusing(t.Table)})
		ruled[plan.FamilyOf(r.Addr())] = true
	}
	for _, f := range families() {
		if ruled[f] {
			out.Rules = append(out.Rules, plan.Rule{Family: f, Priority: t.Rule, Table: t.Table})
		}
	}
	out.Tables = []plan.Table{{Name: t.Filter, Chains: []plan.Chain{
		{Name: "arriving", Hook: "prerouting", Type: "filter", Priority: atMangle, Lines: t.clamp(plan.KeyIn)},
		{Name: "translate", Hook: "prerouting", Type: "nat", Priority: atDNAT, Lines: t.translate()},
		{Name: "input", Hook: "input", Type: "filter", Priority: atFilter, Lines: t.input()},
		{Name: "forward", Hook: "forward", Type: "filter", Priority: atFilter, Lines: t.forward()},
		{Name: "leaving", Hook: "postrouting", Type: "filter", Priority: atMangle, Lines: t.clamp(plan.KeyOut)},
		{Name: "source", Hook: "postrouting", Type: "nat", Priority: atSourceNAT, Lines: t.source()},
	}}}
	return out
}

func (t Tunnel) link(k plan.Key) plan.Term { return plan.If(k, t.Link) }

// clamp keeps segments of TCP below the tunnel's MTU, in both directions: what is behind the other end may know no
// better.
func (t Tunnel) clamp(way plan.Key) (out []plan.Line) {
	for f, headers := range map[plan.Family]int{plan.IPv4: headers4, plan.IPv6: headers6} {
		out = append(out, plan.Line{t.link(way), plan.If(plan.KeyFamily, strconv.Itoa(int(f))),
			plan.If(plan.KeySyn, "syn"), plan.If(plan.KeyMSS, strconv.Itoa(t.MTU-headers))})
	}
	if len(out) == 2 && out[0][1].Arg > out[1][1].Arg { // in one order
		out[0], out[1] = out[1], out[0]
	}
	return out
}

// translate gives destinations that are mapped their own addresses.
func (t Tunnel) translate() (out []plan.Line) {
	for _, r := range t.Served {
		if r.Mapped() {
			f := plan.FamilyOf(r.Here.Addr())
			out = append(out, plan.Line{t.link(plan.KeyIn), plan.Within(f.Dst(), r.Here),
				plan.If(plan.KeyMap, r.There.String())})
		}
	}
	return out
}

// input lets in what answers this machine, and if it serves, what is for its own addresses in the ranges, as those of a
// node are, and echo requests for its address in the tunnel: the other end finds out by them whether packets pass.
func (t Tunnel) input() []plan.Line {
	out := append(t.strange(), plan.Line{t.link(plan.KeyIn), plan.If(plan.KeyState, established), plan.Do("accept")})
	if len(t.Served) > 0 {
		for _, a := range t.Addresses {
			f, proto := plan.FamilyOf(a.Addr()), protoICMP
			if f == plan.IPv6 {
				proto = protoICMPv6
			}
			own := netip.PrefixFrom(a.Addr(), a.Addr().BitLen())
			// Only requests are new: redirects are not, and advertisements of routers belong to no connection.
			out = append(out, plan.Line{t.link(plan.KeyIn), plan.Within(f.Dst(), own), plan.If(plan.KeyProto, proto),
				plan.If(plan.KeyState, "new"), plan.Do("accept")})
		}
		out = append(out, t.served()...)
	}
	return append(out, plan.Line{t.link(plan.KeyIn), plan.Count(), plan.Do("drop")})
}

// The numbers of protocols.
const (
	protoICMP   = "1"
	protoICMPv6 = "58"
)

// forward lets connections into the ranges that are served, and connections of others into those that are routed.
// Nothing else begins at either end.
func (t Tunnel) forward() []plan.Line {
	out := t.strange()
	for _, way := range []plan.Key{plan.KeyIn, plan.KeyOut} {
		out = append(out, plan.Line{t.link(way), plan.If(plan.KeyState, established), plan.Do("accept")})
	}
	out = append(out, t.served()...)
	for _, r := range t.Routed {
		out = append(out, plan.Line{plan.IfNot(plan.KeyIn, t.Link), t.link(plan.KeyOut),
			plan.Within(plan.FamilyOf(r.Addr()).Dst(), r), plan.Do("accept")}) // and not from one client to another
	}
	return append(out, plan.Line{t.link(plan.KeyIn), plan.Count(), plan.Do("drop")},
		plan.Line{t.link(plan.KeyOut), plan.Count(), plan.Do("drop")})
}

// strange drops what comes by the tunnel from addresses that the other end does not have, where something is served: a
// hostile one could speak for a pod, or for anybody. Elsewhere nothing begins, and errors come from any address.
func (t Tunnel) strange() (out []plan.Line) {
	if len(t.Served) == 0 {
		return nil
	}
	for _, f := range families() {
		line := plan.Line{t.link(plan.KeyIn), plan.If(plan.KeyFamily, strconv.Itoa(int(f)))}
		for _, p := range slices.Concat(t.Addresses, t.Routed) {
			if plan.FamilyOf(p.Addr()) == f {
				line = append(line, plan.IfNot(f.Src(), p.Masked().String()))
			}
		}
		out = append(out, append(line, plan.Count(), plan.Do("drop")))
	}
	return out
}

// served lets in what is for the ranges that are served.
func (t Tunnel) served() (out []plan.Line) {
	for _, r := range t.Served {
		out = append(out, plan.Line{t.link(plan.KeyIn), plan.Within(plan.FamilyOf(r.There.Addr()).Dst(), r.There),
			plan.Do("accept")})
	}
	return out
}

// source gives what leaves by the tunnel its address, so that the other end needs no route to anything here; and what
// leaves it for a range that is served an address of this machine, so that nobody there needs one to the tunnel.
func (t Tunnel) source() (out []plan.Line) {
	for _, a := range t.Addresses {
		f := plan.FamilyOf(a.Addr())
		out = append(out, plan.Line{t.link(plan.KeyOut), plan.If(plan.KeyFamily, strconv.Itoa(int(f))),
			plan.Do("masquerade")})
		if len(t.Served) > 0 {
			out = append(out, plan.Line{plan.IfNot(plan.KeyOut, t.Link), plan.Within(f.Src(), a.Masked()),
				plan.Do("masquerade")})
		}
	}
	return out
}

// Part is a range and what it is, such as: the transfer network.
type Part struct {
	What  string
	Range netip.Prefix
}

func (p Part) String() string { return fmt.Sprintf("%s, %s", p.Range, p.What) }

// Overlaps says which of some ranges overlap, each pair once. reserved are those that no range may be in.
func Overlaps(parts, reserved []Part) (out []string) {
	for i, b := range parts {
		for _, a := range parts[:i] {
			if a.Range.Overlaps(b.Range) {
				out = append(out, fmt.Sprintf("%s, and %s, overlap", a, b))
			}
		}
		for _, r := range reserved {
			if r.Range.Overlaps(b.Range) {
				out = append(out, fmt.Sprintf("%s, is in %s", b, r))
			}
		}
	}
	return out
}

// Hosts is how many addresses some ranges have, at most 1<<30.
func Hosts(ranges []netip.Prefix) (n int) {
	for _, r := range ranges {
		n += 1 << min(30, r.Addr().BitLen()-r.Bits())
	}
	return min(n, 1<<30)
}
