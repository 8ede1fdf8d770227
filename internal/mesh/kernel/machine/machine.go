// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/mesh/nat"
)

// Addresses lists the addresses of all interfaces, in the order of the kernel.
func Addresses() ([]nat.Address, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("listing interfaces: %w", err)
	}
	byIndex := map[int]*netlink.LinkAttrs{}
	for _, l := range links {
		byIndex[l.Attrs().Index] = l.Attrs()
	}
	addrs, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("listing addresses: %w", err)
	}
	var out []nat.Address
	for _, a := range addrs {
		link, ip := byIndex[a.LinkIndex], a.IPNet
		if link == nil || ip == nil {
			continue // it went in between
		}
		addr, ok := netip.AddrFromSlice(ip.IP)
		if !ok {
			continue
		}
		bits, _ := ip.Mask.Size()
		one := nat.Address{Interface: link.Name, Up: link.RawFlags&unix.IFF_UP != 0 && link.OperState != netlink.OperDown}
		one.Prefix = netip.PrefixFrom(addr.Unmap(), bits)
		one.Tentative = a.Flags&(unix.IFA_F_TENTATIVE|unix.IFA_F_DADFAILED) != 0 && a.Flags&unix.IFA_F_OPTIMISTIC == 0
		one.Deprecated = a.Flags&unix.IFA_F_DEPRECATED != 0
		one.Temporary = addr.Is6() && a.Flags&unix.IFA_F_TEMPORARY != 0
		out = append(out, one)
	}
	return out, nil
}

// Gateway is the default gateway of IPv4, and the address that this machine has
// towards it.
func Gateway() (gateway, own netip.Addr, err error) {
	routes, err := netlink.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Table: unix.RT_TABLE_MAIN},
		netlink.RT_FILTER_TABLE)
	if err != nil {
		return gateway, own, fmt.Errorf("listing routes: %w", err)
	}
	best := -1
	for i, r := range routes {
		all := r.Dst == nil
		if !all {
			bits, _ := r.Dst.Mask.Size()
			all = bits == 0
		}
		if all && r.Gw != nil && (best < 0 || r.Priority < routes[best].Priority) {
			best = i
		}
	}
	if best < 0 {
		return gateway, own, errors.New("there is no default gateway of IPv4")
	}
	gateway, _ = netip.AddrFromSlice(routes[best].Gw)
	way, err := netlink.RouteGet(routes[best].Gw)
	if err != nil || len(way) == 0 {
		return gateway, own, errors.Join(fmt.Errorf("the way to the gateway %v is not known", gateway), err)
	}
	own, _ = netip.AddrFromSlice(way[0].Src)
	return gateway.Unmap(), own.Unmap(), nil
}

// Default is a hop of a default route of the main table.
type Default struct {
	Interface int // index
	Gateway   netip.Addr
	Priority  int
}

// Defaults lists the hops of the default routes of both IP versions, in the order of the
// kernel.
func Defaults() ([]Default, error) {
	var out []Default
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := netlink.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
		if err != nil {
			return nil, fmt.Errorf("listing routes: %w", err)
		}
		for _, r := range routes {
			if !isDefault(r) {
				continue
			}
			gateway, _ := netip.AddrFromSlice(r.Gw)
			if via, ok := r.Via.(*netlink.Via); ok { // of IPv4 by a neighbour of IPv6 (RFC 5549)
				gateway, _ = netip.AddrFromSlice(via.Addr)
			}
			if len(r.MultiPath) == 0 {
				out = append(out, Default{r.LinkIndex, gateway.Unmap(), r.Priority})
			}
			for _, hop := range r.MultiPath {
				gateway, _ := netip.AddrFromSlice(hop.Gw)
				out = append(out, Default{hop.LinkIndex, gateway.Unmap(), r.Priority})
			}
		}
	}
	return out, nil
}

// Gateways are the default gateways of both families.
func Gateways() ([]netip.Addr, error) {
	hops, err := Defaults()
	var out []netip.Addr
	for _, h := range hops {
		if h.Gateway.IsValid() && !slices.Contains(out, h.Gateway) {
			out = append(out, h.Gateway)
		}
	}
	return out, err
}

// Watch reports when addresses, interfaces or default routes have changed, once for
// changes that come together, and once when it has begun: what it does not report is as
// it was then. It ends with ctx. After an error something may have been missed: look, and
// call it again.
func Watch(ctx context.Context, tell func()) error {
	done := make(chan struct{})
	addrs, links, routes := make(chan netlink.AddrUpdate), make(chan netlink.LinkUpdate), make(chan netlink.RouteUpdate)
	open := 0
	lost := make(chan error, 3)
	failed := func(err error) {
		select {
		case lost <- err:
		default:
		}
	}
	// A subscription sends until it is ended, and is read until then.
	defer func() {
		close(done)
		for ; open > 0; open-- {
			drain(&addrs, &links, &routes)
		}
	}()
	if err := netlink.AddrSubscribeWithOptions(addrs, done,
		netlink.AddrSubscribeOptions{ErrorCallback: failed}); err != nil {
		return fmt.Errorf("following addresses: %w", err)
	}
	open++
	if err := netlink.LinkSubscribeWithOptions(links, done,
		netlink.LinkSubscribeOptions{ErrorCallback: failed}); err != nil {
		return fmt.Errorf("following interfaces: %w", err)
	}
	open++
	if err := netlink.RouteSubscribeWithOptions(routes, done,
		netlink.RouteSubscribeOptions{ErrorCallback: failed}); err != nil {
		return fmt.Errorf("following routes: %w", err)
	}
	open++
	return follow(ctx, sources{addrs, links, routes, lost}, tell)
}

type sources struct {
	addrs  chan netlink.AddrUpdate
	links  chan netlink.LinkUpdate
	routes chan netlink.RouteUpdate
	lost   chan error
}

func follow(ctx context.Context, s sources, tell func()) error {
	settle := time.NewTimer(0)
	settle.Stop()
	waiting := false
	note := func() {
		if !waiting {
			settle.Reset(localSettle)
			waiting = true
		}
	}
	note()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-s.lost:
			return fmt.Errorf("following the machine's addresses: %w", err)
		case _, ok := <-s.addrs:
			if !ok {
				return errors.New("the kernel no longer reports addresses")
			}
			note()
		case _, ok := <-s.links:
			if !ok {
				return errors.New("the kernel no longer reports interfaces")
			}
			note()
		case r, ok := <-s.routes:
			if !ok {
				return errors.New("the kernel no longer reports routes")
			}
			if isDefault(r.Route) {
				note()
			}
		case <-settle.C:
			waiting = false
			tell()
		}
	}
}

func isDefault(r netlink.Route) bool {
	if r.Table != unix.RT_TABLE_MAIN {
		return false
	}
	if r.Dst == nil {
		return true
	}
	bits, _ := r.Dst.Mask.Size()
	return bits == 0
}

// drain reads until one of the channels is closed, and takes that out.
func drain(addrs *chan netlink.AddrUpdate, links *chan netlink.LinkUpdate, routes *chan netlink.RouteUpdate) {
	for {
		select {
		case _, ok := <-*addrs:
			if !ok {
				*addrs = nil
				return
			}
		case _, ok := <-*links:
			if !ok {
				*links = nil
				return
			}
		case _, ok := <-*routes:
			if !ok {
				*routes = nil
				return
			}
		}
	}
}

// Sleeps reports when the machine slept, and for how long, soon after it woke: the clock
// that counts sleep then has gained on the one that does not.
func Sleeps(ctx context.Context, tell func(time.Duration)) error {
	first, err := slept()
	if err != nil {
		return err
	}
	s := sleeper{first, tell}
	return run.Every(ctx, localClock, func() {
		if now, err := slept(); err == nil { // it worked before; the next look will
			s.look(now)
		}
	})
}

// sleeper compares how long the machine has slept with what it was at the last look.
type sleeper struct {
	last time.Duration
	tell func(time.Duration)
}

func (s *sleeper) look(now time.Duration) {
	if gap := now - s.last; gap >= localGap {
		s.tell(gap)
	}
	s.last = now
}

// slept is how long the machine has slept since it began.
func slept() (time.Duration, error) {
	var boot, mono unix.Timespec
	if err := errors.Join(unix.ClockGettime(unix.CLOCK_MONOTONIC, &mono),
		unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot)); err != nil {
		return 0, fmt.Errorf("reading clocks: %w", err)
	}
	return time.Duration(boot.Nano() - mono.Nano()), nil
}
