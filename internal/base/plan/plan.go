// SPDX-License-Identifier: Apache-2.0

// Package plan has the values that describe desired kernel state: links, addresses,
// routes, rules, nftables tables and sysctls, and the difference of two states as steps.
// A step prints as one line, so that a dry run, a log and a golden test show the same
// text. It does not decide what is desired (package topology does), and changes nothing
// (package kernel does).
package plan

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// State is everything in the kernel that is ours. The order of its lists does not matter.
type State struct {
	Links     []Link
	Addresses []Address
	Routes    []Route
	Rules     []Rule
	Tables    []Table
	Sysctls   []Sysctl
}

// Alias is the alias of our links, if the link's creator can set it in the same call.
const Alias = "tombolo mesh"

// Family is 4 or 6.
type Family uint8

// The families.
const (
	IPv4 Family = 4
	IPv6 Family = 6
)

// FamilyOf is the family of an address.
func FamilyOf(a netip.Addr) Family {
	if a.Is4() {
		return IPv4
	}
	return IPv6
}

func (f Family) String() string { return fmt.Sprintf("ipv%d", uint8(f)) }

// Link is a network interface. The tunnel creates it; adding it to a State means to set
// it up, and a link that is no longer desired is removed.
type Link struct {
	Name string
	MTU  int
	Up   bool
}

func (l Link) String() string {
	state := "down"
	if l.Up {
		state = "up"
	}
	return fmt.Sprintf("link %s mtu %d %s", l.Name, l.MTU, state)
}

// Address is an address of a link.
type Address struct {
	Link   string
	Prefix netip.Prefix
}

func (a Address) String() string { return fmt.Sprintf("address %s dev %s", a.Prefix, a.Link) }

// Route sends a range over a link, or makes it unreachable without one. Table, range and
// metric identify it.
type Route struct {
	Table  int
	To     netip.Prefix
	Metric uint32
	Link   string // empty: unreachable
	MTU    int    // 0: the link's
	// Via is the next hop, a machine on the link; not valid: the range itself is there.
	Via netip.Addr
}

func (r Route) String() string {
	var b strings.Builder
	b.WriteString("route ")
	if r.Link == "" {
		b.WriteString("unreachable ")
	}
	b.WriteString(r.To.String())
	if r.Via.IsValid() {
		fmt.Fprintf(&b, " via %s", r.Via)
	}
	if r.Link != "" {
		fmt.Fprintf(&b, " dev %s", r.Link)
	}
	fmt.Fprintf(&b, " table %d metric %d", r.Table, r.Metric)
	if r.MTU != 0 {
		fmt.Fprintf(&b, " mtu %d", r.MTU)
	}
	return b.String()
}

type routeKey struct {
	table  int
	to     netip.Prefix
	metric uint32
}

func (r Route) key() routeKey { return routeKey{r.Table, r.To, r.Metric} }

// Rule routes marked packets by a table. In, if set, is their incoming link; "lo" for
// packets of this machine.
type Rule struct {
	Family     Family
	Priority   int
	In         string
	Mark, Mask uint32
	Table      int
}

func (r Rule) String() string {
	in := ""
	if r.In != "" {
		in = " in " + r.In
	}
	return fmt.Sprintf("rule %s priority %d%s mark %#x/%#x table %d", r.Family, r.Priority, in, r.Mark, r.Mask, r.Table)
}

// Sysctl is a setting of a link, removed with it. Path is relative to /proc/sys/net.
type Sysctl struct {
	Link, Path, Value string
}

func (s Sysctl) String() string { return fmt.Sprintf("sysctl %s = %s", s.Path, s.Value) }

// Table is an nftables table of family inet.
type Table struct {
	Name   string
	Sets   []Set
	Chains []Chain
}

// Set is a named interval set. Sets of one name have the same family.
type Set struct {
	Name   string
	Family Family
	Ranges []Range
}

// Chain is a list of lines. Without a hook it is only the target of jumps.
type Chain struct {
	Name     string
	Hook     string // prerouting, input, forward, output, postrouting
	Type     string // filter, route, nat
	Priority int
	Lines    []Line
}

func (c Chain) head() Chain { c.Lines = nil; return c }

// Equal reports whether both are the same.
func (c Chain) Equal(o Chain) bool {
	return c.Name == o.Name && c.Hook == o.Hook && c.Type == o.Type && c.Priority == o.Priority &&
		slices.EqualFunc(c.Lines, o.Lines, func(a, b Line) bool { return slices.Equal(a, b) })
}

// Normal returns the state sorted, with overlapping ranges of a set merged.
func (s State) Normal() State {
	n := State{
		Links:     sorted(s.Links, func(a, b Link) int { return strings.Compare(a.Name, b.Name) }),
		Addresses: sorted(s.Addresses, compareAddresses),
		Routes:    sorted(s.Routes, compareRoutes),
		Rules:     sorted(s.Rules, compareRules),
		Tables:    sorted(s.Tables, func(a, b Table) int { return strings.Compare(a.Name, b.Name) }),
		Sysctls:   sorted(s.Sysctls, func(a, b Sysctl) int { return strings.Compare(a.Path, b.Path) }),
	}
	for i, t := range n.Tables {
		t.Sets = sorted(t.Sets, func(a, b Set) int { return strings.Compare(a.Name, b.Name) })
		t.Chains = sorted(t.Chains, func(a, b Chain) int { return strings.Compare(a.Name, b.Name) })
		for k := range t.Sets {
			t.Sets[k].Ranges = Unite(t.Sets[k].Ranges)
		}
		n.Tables[i] = t
	}
	return n
}

func sorted[T any](in []T, compare func(a, b T) int) []T {
	out := slices.Clone(in)
	slices.SortStableFunc(out, compare)
	return out
}

func compareAddresses(a, b Address) int {
	return cmp.Or(strings.Compare(a.Link, b.Link), a.Prefix.Compare(b.Prefix))
}

func compareRoutes(a, b Route) int {
	return cmp.Or(cmp.Compare(a.Table, b.Table), a.To.Compare(b.To), cmp.Compare(a.Metric, b.Metric))
}

func compareRules(a, b Rule) int {
	return cmp.Or(cmp.Compare(a.Family, b.Family), cmp.Compare(a.Priority, b.Priority), strings.Compare(a.In, b.In),
		cmp.Compare(a.Mark, b.Mark), cmp.Compare(a.Mask, b.Mask), cmp.Compare(a.Table, b.Table))
}
