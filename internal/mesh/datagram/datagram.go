// SPDX-License-Identifier: Apache-2.0

// Package datagram has what the mesh's sockets of packets share: the options by which a socket says to which address a
// packet came, sends packets that must pass whole, and takes some packets only. It does not open or read a socket.
package datagram

import (
	"fmt"
	"net/netip"
	"strconv"

	"golang.org/x/net/bpf"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"
)

// SetInfo has each packet come with the address that it came to; see Arrived.
func SetInfo(fd int, v6 bool) error {
	level, option := unix.IPPROTO_IP, unix.IP_PKTINFO
	if v6 {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO
	}
	if err := unix.SetsockoptInt(fd, level, option, 1); err != nil {
		return fmt.Errorf("packet info: %w", err)
	}
	return nil
}

// Arrived is the address to which a packet came, by its control messages; not valid: they do not say it. A link-local
// one has the number of its link as its zone.
func Arrived(control []byte, v6 bool) netip.Addr {
	if !v6 {
		var cm ipv4.ControlMessage
		if cm.Parse(control) != nil {
			return netip.Addr{}
		}
		a, _ := netip.AddrFromSlice(cm.Dst.To4())
		return a
	}
	var cm ipv6.ControlMessage
	if cm.Parse(control) != nil {
		return netip.Addr{}
	}
	a, _ := netip.AddrFromSlice(cm.Dst)
	if a.IsLinkLocalUnicast() {
		a = a.WithZone(strconv.Itoa(cm.IfIndex))
	}
	return a
}

// SetDiscovery chooses between packets that routers may cut (IP_PMTUDISC_DONT), and those that must pass whole whatever
// the kernel believes of the path (IP_PMTUDISC_PROBE).
func SetDiscovery(fd int, v6 bool, how int) error {
	level, option := unix.IPPROTO_IP, unix.IP_MTU_DISCOVER
	if v6 {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER // of the same values
	}
	if err := unix.SetsockoptInt(fd, level, option, how); err != nil {
		return fmt.Errorf("path MTU discovery: %w", err)
	}
	return nil
}

// SetFilter has a socket get the packets alone that a program passes.
func SetFilter(fd int, program []bpf.Instruction) error {
	code, err := bpf.Assemble(program)
	if err != nil {
		return err
	}
	raw := make([]unix.SockFilter, len(code))
	for i, c := range code {
		raw[i] = unix.SockFilter{Code: c.Op, Jt: c.Jt, Jf: c.Jf, K: c.K}
	}
	if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: uint16(len(raw)), Filter: &raw[0]}); err != nil {
		return fmt.Errorf("filter of a raw socket: %w", err)
	}
	return nil
}
