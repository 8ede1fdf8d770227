// SPDX-License-Identifier: Apache-2.0

package network

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/base/run"
)

// netlinkRoute is the netlink family of links, addresses and routes.
const netlinkRoute = unix.NETLINK_ROUTE

// End is one end of a link.
type End struct {
	Host  *Host
	Name  string // of the interface
	Addr  string // an IPv4 address, or none
	Addr6 string // an IPv6 address, or none
}

// firstIndex is where the indices of our links begin. They differ from those
// that the kernel gives to the other ends: where a pair bears equal ones in two
// namespaces, the kernel takes its time (to a second) to see that the link is up.
const firstIndex = 1000

// Link joins two hosts by a cable. Each end gets its address and a route to
// the other's; one host may bear the same address on several links. Both ends
// bear an address of IPv4, of IPv6 or of both.
func (n *Network) Link(a, b End) error {
	if _, err := ends(a, b); err != nil {
		return err
	}
	if err := n.Cable(a, b); err != nil {
		return err
	}
	return Bear(a, b)
}

// Bear sets the ends, which are there, up and gives them their addresses.
func Bear(a, b End) error {
	pairs, err := ends(a, b)
	if err != nil {
		return err
	}
	// Up first: a link that is down takes no IPv6 route.
	if err := errors.Join(a.Host.up(a.Name), b.Host.up(b.Name)); err != nil {
		return err
	}
	for _, pair := range pairs {
		if err := a.Host.address(a.Name, pair[0], pair[1]); err != nil {
			return err
		}
		if err := b.Host.address(b.Name, pair[1], pair[0]); err != nil {
			return err
		}
	}
	return nil
}

// ends reads the addresses of a link, pairs of one family.
func ends(a, b End) ([][2]netip.Addr, error) {
	var pairs [][2]netip.Addr
	for _, texts := range [][2]string{{a.Addr, b.Addr}, {a.Addr6, b.Addr6}} {
		if texts == [2]string{} {
			continue
		}
		addrA, errA := netip.ParseAddr(texts[0])
		addrB, errB := netip.ParseAddr(texts[1])
		want4 := texts[0] == a.Addr
		if errA != nil || errB != nil || addrA.Is4() != want4 || addrB.Is4() != want4 {
			return nil, fmt.Errorf("link %s: addresses %q and %q: want two IPv4 addresses in Addr, "+
				"two IPv6 addresses in Addr6", a.Name, texts[0], texts[1])
		}
		pairs = append(pairs, [2]netip.Addr{addrA, addrB})
	}
	if len(pairs) == 0 {
		return nil, fmt.Errorf("link %s: it bears no address", a.Name)
	}
	return pairs, nil
}

// Cable makes the pair of interfaces, down and without addresses.
func (n *Network) Cable(a, b End) error {
	if !namePattern.MatchString(a.Name) || !namePattern.MatchString(b.Name) {
		return fmt.Errorf("link names %q and %q: want lower-case words of at most 15 letters", a.Name, b.Name)
	}
	if a.Host.link == nil || b.Host.link == nil {
		return fmt.Errorf("linking %s to %s: both need a namespace of their own", a.Host.name, b.Host.name)
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = a.Name
	n.mu.Lock()
	attrs.Index = firstIndex + n.links
	n.links++
	n.mu.Unlock()
	// The peer is born in the other namespace: the root namespace never sees
	// either end, and equal names on two hosts cannot collide.
	veth := &netlink.Veth{LinkAttrs: attrs, PeerName: b.Name, PeerNamespace: netlink.NsFd(b.Host.ns)}
	if err := a.Host.link.LinkAdd(veth); err != nil {
		return fmt.Errorf("linking %s of %s to %s of %s: %w", a.Name, a.Host.name, b.Name, b.Host.name, err)
	}
	return nil
}

// address gives an address to an interface, alone with its neighbour.
func (h *Host) address(name string, own, peer netip.Addr) error {
	if own.Is4() {
		return h.give(name, &netlink.Addr{IPNet: single(own), Peer: single(peer)})
	}
	// The kernel makes the route to an IPv6 peer in its own time; so we do.
	if err := h.give(name, &netlink.Addr{IPNet: single(own)}); err != nil {
		return err
	}
	link, err := h.link.LinkByName(name)
	if err != nil {
		return fmt.Errorf("finding %s of %s: %w", name, h.name, err)
	}
	route := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: single(peer), Scope: netlink.SCOPE_LINK}
	if err := h.link.RouteAdd(route); err != nil {
		return fmt.Errorf("adding the route to %s on %s in %s: %w", peer, name, h.name, err)
	}
	return nil
}

func (h *Host) give(name string, addr *netlink.Addr) error {
	link, err := h.link.LinkByName(name)
	if err != nil {
		return fmt.Errorf("finding %s of %s: %w", name, h.name, err)
	}
	if addr.IP.To4() == nil {
		addr.Flags = unix.IFA_F_NODAD // nobody else can have it, and the check takes a second
	}
	if err := h.link.AddrAdd(link, addr); err != nil {
		return fmt.Errorf("giving %s to %s of %s: %w", addr.IPNet, name, h.name, err)
	}
	return nil
}

func (h *Host) up(name string) error {
	link, err := h.link.LinkByName(name)
	if err != nil {
		return fmt.Errorf("finding %s of %s: %w", name, h.name, err)
	}
	if err := h.link.LinkSetUp(link); err != nil {
		return fmt.Errorf("setting %s of %s up: %w", name, h.name, err)
	}
	return nil
}

// Default sends everything of the neighbour's family that the host knows no
// better way for to the neighbour.
func (h *Host) Default(via string) error {
	if addr, err := netip.ParseAddr(via); err == nil && addr.Is6() {
		return h.Route("::/0", via)
	}
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

// linkPatience bounds how long links may take to come up.
const linkPatience = 10 * time.Second

// AwaitLinks waits until every link of the network that is set up carries packets. The
// kernel sees to that a moment later, and what is sent before is lost: a neighbour
// would be asked for again after a second.
func (n *Network) AwaitLinks() error {
	n.mu.Lock()
	hosts := slices.Collect(maps.Values(n.hosts))
	n.mu.Unlock()
	end := time.Now().Add(linkPatience)
	for _, h := range hosts {
		for {
			waits, err := h.waitsFor()
			if err != nil {
				return err
			}
			if waits == "" {
				break
			}
			if time.Now().After(end) || !run.Wait(n.ctx, time.Millisecond) {
				return fmt.Errorf("%s of %s does not come up", waits, h.name)
			}
		}
	}
	return nil
}

// waitsFor names a link that is set up and carries nothing yet, or "".
func (h *Host) waitsFor() (string, error) {
	links, err := h.link.LinkList()
	if err != nil {
		return "", fmt.Errorf("listing the links of %s: %w", h.name, err)
	}
	inUse := map[int]bool{} // LANs with somebody on them: without, they carry nothing
	for _, link := range links {
		inUse[link.Attrs().MasterIndex] = true
	}
	for _, link := range links {
		attrs := link.Attrs()
		if attrs.Name == "lo" || attrs.Flags&net.FlagUp == 0 || attrs.OperState == netlink.OperUp || link.Type() == "tuntap" {
			continue // a TUN device says nothing of itself
		}
		if link.Type() == "bridge" && !inUse[attrs.Index] {
			continue
		}
		// To be asked for one link makes the kernel (6.6 and newer) see to it now
		// and not within a second.
		now, err := h.link.LinkByIndex(attrs.Index)
		if err != nil {
			return "", fmt.Errorf("finding %s of %s: %w", attrs.Name, h.name, err)
		}
		if now.Attrs().OperState != netlink.OperUp {
			return attrs.Name, nil
		}
	}
	return "", nil
}

func single(addr netip.Addr) *net.IPNet {
	return &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(addr.BitLen(), addr.BitLen())}
}

// Addr4 is the first IPv4 address of a link.
func (h *Host) Addr4(name string) (netip.Addr, error) {
	link, err := h.link.LinkByName(name)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("finding %s of %s: %w", name, h.name, err)
	}
	addrs, err := h.link.AddrList(link, netlink.FAMILY_V4)
	if err != nil {
		return netip.Addr{}, err
	}
	if len(addrs) == 0 {
		return netip.Addr{}, errors.New(name + " of " + h.name + " has no IPv4 address")
	}
	addr, _ := netip.AddrFromSlice(net.IP.To4(addrs[0].IP))
	return addr, nil
}
