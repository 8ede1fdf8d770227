// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/plan"
)

// Apply does the steps in their order, and those on nftables that follow each other in
// one transaction, or in a few where sets are large. At the first that fails it ends,
// with what came before it in force: to observe and to compare again mends it. What is
// to be removed and is not there is no failure.
func (k *Kernel) Apply(steps []plan.Step) error {
	for len(steps) > 0 {
		n := filterSteps(steps)
		if n == 0 {
			if err := k.step(steps[0]); err != nil {
				return err
			}
			n = 1
		} else if err := k.filter(steps[:n]); err != nil {
			return err
		}
		steps = steps[n:]
	}
	return nil
}

func (k *Kernel) step(s plan.Step) error {
	var err error
	switch o := s.On.(type) {
	case plan.Link:
		err = k.setLink(s.Verb, o)
	case plan.Address:
		err = k.setAddress(s.Verb, o)
	case plan.Route:
		err = k.setRoute(s.Verb, o)
	case plan.Rule:
		err = k.setRule(s.Verb, o)
	case plan.Sysctl:
		err = writeSetting(o)
		if errors.Is(err, os.ErrNotExist) {
			err = unix.ENODEV
		}
	default:
		return fault.Newf(fault.CodeInternal, "step %q", s).Whyf("nobody knows what it is on")
	}
	if s.Verb == plan.Remove && missing(err) {
		return nil
	}
	return k.names.failed(s, err)
}

func (k *Kernel) setLink(v plan.Verb, l plan.Link) error {
	link, err := k.route.LinkByName(l.Name)
	if err != nil && v != plan.Remove {
		link, err = k.reclaim(l.Name, err)
	}
	if err != nil {
		return err
	}
	if !k.names.ours(link) {
		return unix.EEXIST
	}
	if v == plan.Remove {
		return k.route.LinkDel(link)
	}
	if link.Attrs().MTU != l.MTU {
		if err := k.route.LinkSetMTU(link, l.MTU); err != nil {
			return err
		}
	}
	if l.Up {
		return k.route.LinkSetUp(link)
	}
	return k.route.LinkSetDown(link)
}

func (k *Kernel) setAddress(v plan.Verb, a plan.Address) error {
	link, err := k.route.LinkByName(a.Link)
	if err != nil {
		return err
	}
	// Nobody else can have the address: it is not asked whether (RFC 4862 section 5.4).
	addr := &netlink.Addr{IPNet: ipnet(a.Prefix)}
	if a.Prefix.Addr().Is6() {
		addr.Flags = unix.IFA_F_NODAD
	}
	if v == plan.Remove {
		return k.route.AddrDel(link, addr)
	}
	return k.route.AddrReplace(link, addr)
}

func (k *Kernel) setRoute(v plan.Verb, r plan.Route) error {
	route := &netlink.Route{Table: r.Table, Dst: ipnet(r.To), Priority: int(r.Metric), MTU: r.MTU,
		Protocol: netlink.RouteProtocol(k.names.Protocol)}
	if r.Link == "" {
		route.Type = unix.RTN_UNREACHABLE
	} else {
		link, err := k.route.LinkByName(r.Link)
		if err != nil {
			return err
		}
		route.LinkIndex = link.Attrs().Index
		switch {
		case r.Via.IsValid():
			route.Gw = r.Via.AsSlice()
		case r.To.Addr().Is4():
			route.Scope = netlink.SCOPE_LINK
		}
	}
	switch v {
	case plan.Remove:
		return k.route.RouteDel(route)
	case plan.Change:
		return k.route.RouteReplace(route)
	}
	return k.route.RouteAdd(route)
}

func (k *Kernel) setRule(v plan.Verb, r plan.Rule) error {
	rule := netlink.NewRule()
	rule.Family = netlink.FAMILY_V4
	if r.Family == plan.IPv6 {
		rule.Family = netlink.FAMILY_V6
	}
	rule.Priority, rule.Mark, rule.Mask, rule.Table, rule.IifName = r.Priority, r.Mark, &r.Mask, r.Table, r.In
	rule.Protocol = k.names.Protocol
	if v == plan.Remove {
		return k.route.RuleDel(rule)
	}
	return k.route.RuleAdd(rule)
}
