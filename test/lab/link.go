// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// netlinkRoute is the netlink family of links, addresses and routes.
const netlinkRoute = unix.NETLINK_ROUTE

// End is one end of a link.
type End struct {
	Host *Host
	Name string // of the interface
	Addr string // an IPv4 address
}

// Link joins two hosts by a cable. Each end gets its address and a route to
// the other's; one host may bear the same address on several links.
func (l *Lab) Link(a, b End) error {
	addrA, errA := netip.ParseAddr(a.Addr)
	addrB, errB := netip.ParseAddr(b.Addr)
	if errA != nil || errB != nil || !addrA.Is4() || !addrB.Is4() {
		return fmt.Errorf("link %s: addresses %q and %q: want two IPv4 addresses", a.Name, a.Addr, b.Addr)
	}
	if !namePattern.MatchString(a.Name) || !namePattern.MatchString(b.Name) {
		return fmt.Errorf("link names %q and %q: want lower-case words of at most 15 letters", a.Name, b.Name)
	}
	if a.Host.link == nil || b.Host.link == nil {
		return fmt.Errorf("linking %s to %s: both need a namespace of their own", a.Host.name, b.Host.name)
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = a.Name
	// The peer is born in the other namespace: the root namespace never sees
	// either end, and equal names on two hosts cannot collide.
	veth := &netlink.Veth{LinkAttrs: attrs, PeerName: b.Name, PeerNamespace: netlink.NsFd(b.Host.ns)}
	if err := a.Host.link.LinkAdd(veth); err != nil {
		return fmt.Errorf("linking %s of %s to %s of %s: %w", a.Name, a.Host.name, b.Name, b.Host.name, err)
	}
	if err := a.Host.address(a.Name, addrA, addrB); err != nil {
		return err
	}
	return b.Host.address(b.Name, addrB, addrA)
}

func (h *Host) address(name string, own, peer netip.Addr) error {
	link, err := h.link.LinkByName(name)
	if err != nil {
		return fmt.Errorf("finding %s of %s: %w", name, h.name, err)
	}
	addr := &netlink.Addr{IPNet: single(own), Peer: single(peer)}
	if err := h.link.AddrAdd(link, addr); err != nil {
		return fmt.Errorf("giving %s to %s of %s: %w", own, name, h.name, err)
	}
	if err := h.link.LinkSetUp(link); err != nil {
		return fmt.Errorf("setting %s of %s up: %w", name, h.name, err)
	}
	return nil
}

// Default sends everything that the host knows no better way for to a
// neighbour.
func (h *Host) Default(via string) error {
	return h.Route("0.0.0.0/0", via)
}

// Route sends a range to a neighbour.
func (h *Host) Route(to, via string) error {
	route, err := h.route(to, via)
	if err != nil {
		return err
	}
	if err := h.link.RouteAdd(route); err != nil {
		return fmt.Errorf("adding the route to %s via %s in %s: %w", to, via, h.name, err)
	}
	return nil
}

// Unroute takes a route away again.
func (h *Host) Unroute(to, via string) error {
	route, err := h.route(to, via)
	if err != nil {
		return err
	}
	if err := h.link.RouteDel(route); err != nil {
		return fmt.Errorf("removing the route to %s via %s in %s: %w", to, via, h.name, err)
	}
	return nil
}

func (h *Host) route(to, via string) (*netlink.Route, error) {
	prefix, err := netip.ParsePrefix(to)
	if err != nil {
		return nil, fmt.Errorf("route of %s: %w", h.name, err)
	}
	gateway, err := netip.ParseAddr(via)
	if err != nil {
		return nil, fmt.Errorf("route of %s: %w", h.name, err)
	}
	return &netlink.Route{
		Dst: &net.IPNet{IP: prefix.Addr().AsSlice(), Mask: net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen())},
		Gw:  gateway.AsSlice(),
	}, nil
}

// Links returns the names of the host's interfaces without lo.
func (h *Host) Links() ([]string, error) {
	links, err := h.link.LinkList()
	if err != nil {
		return nil, fmt.Errorf("listing the links of %s: %w", h.name, err)
	}
	var names []string
	for _, link := range links {
		if name := link.Attrs().Name; name != "lo" {
			names = append(names, name)
		}
	}
	return names, nil
}

func single(addr netip.Addr) *net.IPNet {
	return &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(addr.BitLen(), addr.BitLen())}
}
