// SPDX-License-Identifier: Apache-2.0

package stunserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"
)

// sock is a UDP socket that answers from the address to which a request was sent: a
// machine has several, and callers accept no answer from another one.
type sock struct {
	conn *net.UDPConn
	port uint16
	v6   bool       // an IPv6 socket, which may receive IPv4 too
	own  netip.Addr // the bound address; invalid: all
}

func listen(ctx context.Context, address string) (*sock, error) {
	var lc net.ListenConfig
	pc, err := lc.ListenPacket(ctx, "udp", address)
	if err != nil {
		return nil, err
	}
	conn, ok := pc.(*net.UDPConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("%s is no UDP socket", address), pc.Close())
	}
	at := conn.LocalAddr().(*net.UDPAddr).AddrPort()
	s := &sock{conn: conn, port: at.Port()}
	if err := s.kind(); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	if !at.Addr().IsUnspecified() {
		s.own = at.Addr().Unmap()
		return s, nil
	}
	if s.v6 {
		err = ipv6.NewPacketConn(conn).SetControlMessage(ipv6.FlagDst, true)
	} else {
		err = ipv4.NewPacketConn(conn).SetControlMessage(ipv4.FlagDst, true)
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return s, nil
}

// kind finds the family of the socket, which the address of a dual-stack one does not show.
func (s *sock) kind() error {
	raw, err := s.conn.SyscallConn()
	if err != nil {
		return err
	}
	var domain int
	var inner error
	if err := raw.Control(func(fd uintptr) {
		domain, inner = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_DOMAIN)
	}); err != nil {
		return err
	}
	s.v6 = domain == unix.AF_INET6
	return inner
}

// to is the destination address of a packet.
func (s *sock) to(control []byte) netip.Addr {
	if s.own.IsValid() {
		return s.own
	}
	var ip net.IP
	if s.v6 {
		var cm ipv6.ControlMessage
		if cm.Parse(control) == nil {
			ip = cm.Dst
		}
	} else {
		var cm ipv4.ControlMessage
		if cm.Parse(control) == nil {
			ip = cm.Dst
		}
	}
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}

// at is this socket's endpoint at one of the machine's addresses; none for a nil socket.
func (s *sock) at(a netip.Addr) netip.AddrPort {
	if s == nil || !a.IsValid() || s.own.IsValid() && s.own != a {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(a, s.port)
}

func (s *sock) send(packet []byte, to netip.AddrPort, from netip.Addr) error {
	var control []byte
	switch {
	case s.own.IsValid() || !from.IsValid() || from.IsMulticast():
	case from.Is6():
		control = (&ipv6.ControlMessage{Src: from.AsSlice()}).Marshal()
	default: // a socket of IPv6 that carries IPv4 takes this, too
		control = (&ipv4.ControlMessage{Src: from.AsSlice()}).Marshal()
	}
	_, _, err := s.conn.WriteMsgUDPAddrPort(packet, control, to)
	return err
}
