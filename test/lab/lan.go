// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// LAN gives a router a segment that several hosts join: one broadcast domain, on
// which they reach each other without the router. The prefixes are the router's
// own addresses there, as 192.168.1.1/24.
func (h *Host) LAN(name string, prefixes ...string) error {
	if !namePattern.MatchString(name) {
		return fmt.Errorf("LAN name %q: want a lower-case word of at most 15 letters", name)
	}
	if h.link == nil {
		return fmt.Errorf("a LAN of %s: it needs a namespace of its own", h.name)
	}
	// Neighbours talk below the router, past its filters and its NAT.
	for _, file := range []string{"bridge/bridge-nf-call-iptables", "bridge/bridge-nf-call-ip6tables"} {
		if err := h.Sysctl(file, "0"); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	snooping := false // it would hold back multicast until somebody asks
	if err := h.link.LinkAdd(&netlink.Bridge{LinkAttrs: attrs, MulticastSnooping: &snooping}); err != nil {
		return fmt.Errorf("making the LAN %s of %s: %w", name, h.name, err)
	}
	if err := h.up(name); err != nil {
		return err
	}
	return h.within(name, prefixes)
}

// Join plugs a host into a LAN of the router, under the given name of interface
// and with addresses such as 192.168.1.10/24. At the router's side the interface
// bears the guest's name.
func (h *Host) Join(lan string, guest *Host, link string, prefixes ...string) error {
	bridge, err := h.link.LinkByName(lan)
	if err != nil {
		return fmt.Errorf("finding the LAN %s of %s: %w", lan, h.name, err)
	}
	if err := h.lab.cable(End{Host: guest, Name: link}, End{Host: h, Name: guest.name}); err != nil {
		return err
	}
	port, err := h.link.LinkByName(guest.name)
	if err != nil {
		return fmt.Errorf("finding %s of %s: %w", guest.name, h.name, err)
	}
	if err := h.link.LinkSetMaster(port, bridge); err != nil {
		return fmt.Errorf("plugging %s into %s of %s: %w", guest.name, lan, h.name, err)
	}
	if err := errors.Join(h.up(guest.name), guest.up(link)); err != nil {
		return err
	}
	return guest.within(link, prefixes)
}

// within gives addresses with the range around them.
func (h *Host) within(link string, prefixes []string) error {
	for _, text := range prefixes {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return fmt.Errorf("address of %s of %s: %w", link, h.name, err)
		}
		addr := &netlink.Addr{IPNet: &net.IPNet{IP: prefix.Addr().AsSlice(),
			Mask: net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen())}}
		if err := h.give(link, addr); err != nil {
			return err
		}
	}
	return nil
}
