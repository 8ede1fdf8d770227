// SPDX-License-Identifier: Apache-2.0

package espudp

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"syscall"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/socket"
	"github.com/tombolo-io/tombolo/internal/mesh/datagram"
	"github.com/tombolo-io/tombolo/internal/mesh/nat"
)

// family is one of the two sockets.
type family struct {
	conn    *net.UDPConn
	raw     syscall.RawConn
	v6      bool
	control [128]byte // of what is read
}

// setUp sets the options of a socket before it has its port: nothing that is ESP is ever read here.
func setUp(raw syscall.RawConn, v6 bool, mark uint32) error {
	if mark != 0 {
		if err := socket.Mark(raw, mark); err != nil {
			return fault.New(fault.CodeUnsupported, "mark of the mesh's socket").Because(err).
				Hint("it needs CAP_NET_ADMIN: run as root, or grant it")
		}
	}
	var err error
	if e := raw.Control(func(fd uintptr) { err = options(int(fd), v6) }); e != nil {
		return e
	}
	return err
}

func options(fd int, v6 bool) error {
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, buffer) != nil {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, buffer); err != nil { // as much as permitted
			return fmt.Errorf("socket buffer: %w", err)
		}
	}
	if err := datagram.SetInfo(fd, v6); err != nil {
		return err
	}
	if err := datagram.SetDiscovery(fd, v6, unix.IP_PMTUDISC_DONT); err != nil {
		return err
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_UDP, unix.UDP_ENCAP, unix.UDP_ENCAP_ESPINUDP); err != nil {
		return fault.New(fault.CodeUnsupported, "ESP in UDP").Because(err).
			Hint("load it with modprobe -a esp4 esp6, or use a kernel that has it (for IPv6: Linux 5.8 or later)")
	}
	return nil
}

func (f *family) discovery(how int) error {
	var err error
	if e := f.raw.Control(func(fd uintptr) { err = datagram.SetDiscovery(int(fd), f.v6, how) }); e != nil {
		return e
	}
	return err
}

// read reads a packet with its marker.
func (f *family) read(into []byte) (packet, error) {
	n, size, _, from, err := f.conn.ReadMsgUDPAddrPort(into, f.control[:])
	if err != nil {
		return packet{}, err
	}
	return packet{into[:n], from, datagram.Arrived(f.control[:size], f.v6)}, nil
}

// write sends a packet, from a local address if it is valid.
func (f *family) write(b []byte, to netip.AddrPort, local netip.Addr) error {
	var control []byte
	switch {
	case !local.IsValid():
	case local.Is4():
		control = (&ipv4.ControlMessage{Src: local.AsSlice()}).Marshal()
	default:
		control = (&ipv6.ControlMessage{Src: local.AsSlice(), IfIndex: index(local.Zone())}).Marshal()
	}
	_, _, err := f.conn.WriteMsgUDPAddrPort(b, control, to)
	return err
}

// index is that of a zone, which may be a link's name.
func index(zone string) int {
	if n, err := strconv.Atoi(zone); err == nil {
		return n
	}
	if link, err := net.InterfaceByName(zone); err == nil {
		return link.Index
	}
	return 0
}

// Send sends one packet behind the marker, from an address of this machine if local is one: an answer leaves from where
// it was asked. If the machine has lost that address, the packet leaves from another one.
func (s *Socket) Send(to netip.AddrPort, local netip.Addr, packet []byte) error {
	f := s.family(to.Addr())
	if f == nil {
		return unix.EAFNOSUPPORT
	}
	s.sizing.RLock()
	defer s.sizing.RUnlock()
	return f.send(to, local, packet)
}

// SendWhole is Send for a packet that must pass in one piece: with the don't-fragment bit, and whatever the kernel
// believes of the path's MTU. What is longer than the first link takes is refused here.
func (s *Socket) SendWhole(to netip.AddrPort, local netip.Addr, packet []byte) error {
	f := s.family(to.Addr())
	if f == nil {
		return unix.EAFNOSUPPORT
	}
	s.sizing.Lock() // the option is the socket's: nobody else sends meanwhile
	defer s.sizing.Unlock()
	if err := f.discovery(unix.IP_PMTUDISC_PROBE); err != nil {
		return err
	}
	return errors.Join(f.send(to, local, packet), f.discovery(unix.IP_PMTUDISC_DONT))
}

func (f *family) send(to netip.AddrPort, local netip.Addr, packet []byte) error {
	b := append(append(make([]byte, 0, len(nat.Marker)+len(packet)), nat.Marker...), packet...)
	to, local = netip.AddrPortFrom(to.Addr().Unmap(), to.Port()), local.Unmap()
	err := f.write(b, to, local)
	if local.IsValid() && (errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EADDRNOTAVAIL) ||
		errors.Is(err, unix.ENETUNREACH)) {
		err = f.write(b, to, netip.Addr{})
	}
	return err
}
