// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// LAN gives a router a segment that several hosts join: one broadcast domain, on
// which they reach each other without the router. The prefixes are the router's
// own addresses there, as 192.168.1.1/24.
func LAN(h *Host, name string, prefixes ...string) error {
	if h.Netlink() == nil {
		return fmt.Errorf("a LAN of %s: it needs a namespace of its own", h.Name())
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
	if err := h.Netlink().LinkAdd(&netlink.Bridge{LinkAttrs: attrs, MulticastSnooping: &snooping}); err != nil {
		return fmt.Errorf("making the LAN %s of %s: %w", name, h.Name(), err)
	}
	if err := up(h, name); err != nil {
		return err
	}
	return within(h, name, prefixes)
}

// Join plugs a host into a LAN of the router, under the given name of interface
// and with addresses such as 192.168.1.10/24. At the router's side the interface
// bears the guest's name.
func Join(h *Host, lan string, guest *Host, link string, prefixes ...string) error {
	bridge, err := h.Netlink().LinkByName(lan)
	if err != nil {
		return fmt.Errorf("finding the LAN %s of %s: %w", lan, h.Name(), err)
	}
	if err := h.Network().Cable(End{Host: guest, Name: link}, End{Host: h, Name: guest.Name()}); err != nil {
		return err
	}
	port, err := h.Netlink().LinkByName(guest.Name())
	if err != nil {
		return fmt.Errorf("finding %s of %s: %w", guest.Name(), h.Name(), err)
	}
	if err := h.Netlink().LinkSetMaster(port, bridge); err != nil {
		return fmt.Errorf("plugging %s into %s of %s: %w", guest.Name(), lan, h.Name(), err)
	}
	if err := errors.Join(up(h, guest.Name()), up(guest, link)); err != nil {
		return err
	}
	return within(guest, link, prefixes)
}

// within gives addresses with the range around them.
func within(h *Host, link string, prefixes []string) error {
	for _, text := range prefixes {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return fmt.Errorf("address of %s of %s: %w", link, h.Name(), err)
		}
		addr := &netlink.Addr{IPNet: &net.IPNet{IP: prefix.Addr().AsSlice(),
			Mask: net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen())}}
		if prefix.Addr().Is6() {
			addr.Flags = unix.IFA_F_NODAD // nobody else can have it, and the check takes a second
		}
		if err := change(h, link, func(l netlink.Link) error { return h.Netlink().AddrAdd(l, addr) }); err != nil {
			return err
		}
	}
	return nil
}
