// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"net/netip"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/base/plan"
)

// Observe reads what has our names.
func (k *Kernel) Observe() (plan.State, error) {
	var s plan.State
	for _, read := range []func(*plan.State) error{k.links, k.routes, k.rules, k.tables} {
		err := whole(func() error {
			part := s
			if err := read(&part); err != nil {
				return err
			}
			s = part
			return nil
		})
		if err != nil {
			return plan.State{}, err
		}
	}
	return s.Normal(), nil
}

// whole reads until what was read had not changed meanwhile, a few times: on a busy
// node routes come and go all the time.
func whole(read func() error) error {
	var err error
	for range kernelReads {
		if err = read(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			return err
		}
	}
	return err
}

// settings are the sysctls that we set on our link.
func settings(link string) []string {
	return []string{"ipv4/conf/" + link + "/rp_filter", "ipv4/conf/" + link + "/src_valid_mark",
		"ipv6/conf/" + link + "/disable_ipv6"}
}

func (k *Kernel) links(s *plan.State) error {
	if k.names.Link == "" {
		return nil
	}
	link, err := k.route.LinkByName(k.names.Link)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil
	}
	if err != nil {
		return reading("link "+k.names.Link, err)
	}
	if !k.names.ours(link) {
		return nil
	}
	a := link.Attrs()
	if err := k.know(a.Index); err != nil {
		return err
	}
	s.Links = append(s.Links, plan.Link{Name: a.Name, MTU: a.MTU, Up: a.RawFlags&unix.IFF_UP != 0})
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		addrs, err := k.route.AddrList(link, family)
		if err != nil {
			return reading("addresses of "+a.Name, err)
		}
		for _, addr := range addrs {
			if addr.IP.IsLinkLocalUnicast() { // the kernel's own
				continue
			}
			s.Addresses = append(s.Addresses, plan.Address{Link: a.Name, Prefix: prefix(addr.IPNet, family)})
		}
	}
	for _, path := range settings(a.Name) {
		data, err := os.ReadFile(sysctl(path))
		// with an MTU below 1280 the kernel takes those of IPv6 away, until it is a larger one again
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return reading("sysctl "+path, err)
		}
		s.Sysctls = append(s.Sysctls, plan.Sysctl{Link: a.Name, Path: path, Value: strings.TrimSpace(string(data))})
	}
	return nil
}

// Settings reads the sysctls of our link and nothing else, which is cheap: the kernel reports
// nobody when they change. Of a link that is not there it has none.
func (k *Kernel) Settings() []plan.Sysctl {
	var out []plan.Sysctl
	for _, path := range settings(k.names.Link) {
		if data, err := os.ReadFile(sysctl(path)); err == nil {
			out = append(out, plan.Sysctl{Link: k.names.Link, Path: path, Value: strings.TrimSpace(string(data))})
		}
	}
	return out
}

func (k *Kernel) routes(s *plan.State) error {
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := k.allRoutes(family)
		if err != nil {
			return err
		}
		for _, r := range routes {
			if k.names.route(r, by(r, k.index)) {
				s.Routes = append(s.Routes, k.routeOf(r, family))
			}
		}
	}
	return nil
}

// Elsewhere reads what has our protocol in tables that are not ours, and goes by a link: it belongs to another command
// of Tombolo on this machine. What is in the machine's own tables is not looked at.
func (k *Kernel) Elsewhere() (out []plan.Route, err error) {
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		var routes []netlink.Route
		if err := whole(func() (err error) { routes, err = k.allRoutes(family); return err }); err != nil {
			return nil, err
		}
		for _, r := range routes {
			ours := uint8(r.Protocol) == k.names.Protocol && r.Type == unix.RTN_UNICAST
			if ours && r.Table != k.names.Table && !shared(r.Table) {
				out = append(out, k.routeOf(r, family))
			}
		}
	}
	return out, nil
}

func (k *Kernel) allRoutes(family int) ([]netlink.Route, error) {
	routes, err := k.route.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return nil, reading("routes", err)
	}
	return routes, nil
}

func (k *Kernel) routeOf(r netlink.Route, family int) plan.Route {
	out := plan.Route{Table: r.Table, To: prefix(r.Dst, family), Metric: uint32(r.Priority), MTU: r.MTU}
	if r.Type == unix.RTN_UNREACHABLE {
		return out
	}
	if out.Link = k.linkName(r.LinkIndex); out.Link == "" {
		out.Link = "unknown" // some link, and not one of ours
	}
	if via, ok := netip.AddrFromSlice(r.Gw); ok {
		out.Via = via
		if family == netlink.FAMILY_V4 {
			out.Via = via.Unmap()
		}
	}
	return out
}

func (k *Kernel) rules(s *plan.State) error {
	rules, err := k.allRules()
	if err != nil {
		return err
	}
	for _, r := range rules {
		if k.names.rule(r) {
			s.Rules = append(s.Rules, ruleOf(r))
		}
	}
	return nil
}

func (k *Kernel) allRules() ([]netlink.Rule, error) {
	var out []netlink.Rule
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		rules, err := k.route.RuleList(family)
		if err != nil {
			return nil, reading("rules", err)
		}
		for _, r := range rules {
			r.Family = family
			out = append(out, r)
		}
	}
	return out, nil
}

func ruleOf(r netlink.Rule) plan.Rule {
	out := plan.Rule{Family: plan.IPv4, Priority: max(r.Priority, 0), In: r.IifName, Mark: r.Mark, Table: r.Table}
	if r.Family == netlink.FAMILY_V6 {
		out.Family = plan.IPv6
	}
	if r.Mask != nil {
		out.Mask = *r.Mask
	}
	return out
}

// reading is the fault of what cannot be read.
func reading(what string, err error) error {
	if denied(err) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPROTONOSUPPORT) {
		return unsupported("reading "+what, err)
	}
	return refused("reading "+what, err)
}
