// SPDX-License-Identifier: Apache-2.0

package rawudp

import (
	"errors"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/base/socket"
)

// Send sends one packet, from an address of this machine if local is one: an answer leaves from where it was asked. If
// the machine has lost that address, the packet leaves from another one.
func (s *Socket) Send(to netip.AddrPort, local netip.Addr, packet []byte) error {
	f := s.family(to.Addr())
	if f == nil {
		return unix.EAFNOSUPPORT
	}
	s.sizing.RLock()
	defer s.sizing.RUnlock()
	return s.send(f, to, local, packet)
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
	return errors.Join(s.send(f, to, local, packet), f.discovery(unix.IP_PMTUDISC_DONT))
}

func (s *Socket) send(f *family, to netip.AddrPort, local netip.Addr, packet []byte) error {
	to, local = netip.AddrPortFrom(to.Addr().Unmap(), to.Port()), local.Unmap()
	if local.IsValid() {
		err := f.write(netip.AddrPortFrom(local, s.set.Port), to, packet)
		if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EADDRNOTAVAIL) && !errors.Is(err, unix.ENETUNREACH) {
			return err
		}
	}
	local, err := s.leavesFrom(to)
	if err != nil {
		return err
	}
	return f.write(netip.AddrPortFrom(local, s.set.Port), to, packet)
}

// leavesFrom is the address of this machine from which the kernel would send: the checksum is about it, too.
func (s *Socket) leavesFrom(to netip.AddrPort) (netip.Addr, error) {
	d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error { return socket.Mark(c, s.set.Mark) }}
	c, err := d.Dial("udp", to.String()) // which sends nothing
	if err != nil {
		return netip.Addr{}, err
	}
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap(), nil
}

func (f *family) write(from, to netip.AddrPort, packet []byte) error {
	var control []byte
	if f.v6 {
		control = (&ipv6.ControlMessage{Src: from.Addr().AsSlice()}).Marshal()
	} else {
		control = (&ipv4.ControlMessage{Src: from.Addr().AsSlice()}).Marshal()
	}
	_, _, err := f.conn.WriteMsgIP(compose(from, to, packet), control,
		&net.IPAddr{IP: to.Addr().AsSlice(), Zone: to.Addr().Zone()})
	return err
}
