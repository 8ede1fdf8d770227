// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Hop is how this machine reaches an address.
type Hop struct {
	Link    string
	Own     netip.Addr // of this machine, towards it
	Gateway netip.Addr // a router in between; not valid: the address is on the link
	Self    bool       // it is this machine's own
}

// HopTo asks the kernel how it reaches an address.
func HopTo(a netip.Addr) (Hop, error) {
	ways, err := netlink.RouteGet(a.AsSlice())
	if err != nil {
		return Hop{}, fmt.Errorf("the way to %s: %w", a, err)
	}
	if len(ways) == 0 {
		return Hop{}, fmt.Errorf("the way to %s is not known", a)
	}
	way := ways[0]
	out := Hop{Self: way.Type == unix.RTN_LOCAL}
	own, _ := netip.AddrFromSlice(way.Src)
	gateway, _ := netip.AddrFromSlice(way.Gw)
	out.Own, out.Gateway = own.Unmap(), gateway.Unmap()
	link, err := netlink.LinkByIndex(way.LinkIndex)
	if err != nil {
		return Hop{}, fmt.Errorf("the link to %s: %w", a, err)
	}
	out.Link = link.Attrs().Name
	return out, nil
}
