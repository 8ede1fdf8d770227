// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// change applies fn to a link of the host.
func change(h *Host, name string, fn func(netlink.Link) error) error {
	link, err := h.Netlink().LinkByName(name)
	if err == nil {
		err = fn(link)
	}
	if err != nil {
		return fmt.Errorf("changing %s of %s: %w", name, h.Name(), err)
	}
	return nil
}

// up sets a link up.
func up(h *Host, name string) error { return change(h, name, h.Netlink().LinkSetUp) }

// setMTU changes how big packets may be that leave through the link.
func setMTU(h *Host, name string, mtu int) error {
	return change(h, name, func(l netlink.Link) error { return h.Netlink().LinkSetMTU(l, mtu) })
}

// readdress replaces the address of a link and that of its neighbour.
func readdress(h *Host, name string, old, new [2]netip.Addr) error {
	return change(h, name, func(l netlink.Link) error {
		return errors.Join(
			h.Netlink().AddrDel(l, &netlink.Addr{IPNet: single(old[0]), Peer: single(old[1])}),
			h.Netlink().AddrAdd(l, &netlink.Addr{IPNet: single(new[0]), Peer: single(new[1])}))
	})
}

// redefault replaces the host's default route of IPv4.
func redefault(h *Host, via netip.Addr) error {
	all := &net.IPNet{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}
	if err := h.Netlink().RouteReplace(&netlink.Route{Dst: all, Gw: via.AsSlice()}); err != nil {
		return fmt.Errorf("replacing the default route of %s: %w", h.Name(), err)
	}
	return nil
}

// Links returns the names of the host's interfaces without lo.
func Links(h *Host) ([]string, error) {
	links, err := h.Netlink().LinkList()
	if err != nil {
		return nil, fmt.Errorf("listing the links of %s: %w", h.Name(), err)
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
