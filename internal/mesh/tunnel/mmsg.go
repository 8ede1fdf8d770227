// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"encoding/binary"
	"net"
	"net/netip"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mmsghdr is struct mmsghdr of recvmmsg(2) and sendmmsg(2).
type mmsghdr struct {
	hdr unix.Msghdr
	len uint32
	_   [4]byte
}

// controlSize has room for a segment size and the larger of the packet infos.
const controlSize = 64

// batch is what one system call takes or gives. It is made once and used again and
// again: nothing is allocated for a packet.
type batch struct {
	msgs  [tunnelBatch]mmsghdr
	iovs  [tunnelBatch]unix.Iovec
	ctl   [tunnelBatch][controlSize]byte
	names [tunnelBatch]unix.RawSockaddrInet6 // either family's fits

	from, to int // messages of the call
	done     int // how many of them were taken or given
	errno    syscall.Errno
	recv     func(fd uintptr) bool
	send     func(fd uintptr) bool
}

func newBatch() *batch {
	b := &batch{}
	b.recv = func(fd uintptr) bool { return b.call(unix.SYS_RECVMMSG, fd) }
	b.send = func(fd uintptr) bool { return b.call(unix.SYS_SENDMMSG, fd) }
	return b
}

// call makes the system call, and says false when it is to be made again once the
// socket is ready.
func (b *batch) call(trap, fd uintptr) bool {
	for {
		n, _, errno := unix.Syscall6(trap, fd, uintptr(unsafe.Pointer(&b.msgs[b.from])), uintptr(b.to-b.from),
			unix.MSG_DONTWAIT, 0, 0)
		switch errno {
		case unix.EINTR:
			continue
		case unix.EAGAIN:
			return false
		}
		b.done, b.errno = int(n), errno
		if errno != 0 {
			b.done = 0
		}
		return true
	}
}

// setName has message i go to an address.
func (b *batch) setName(i int, to netip.AddrPort) {
	h := &b.msgs[i].hdr
	h.Name = (*byte)(unsafe.Pointer(&b.names[i]))
	if a := to.Addr(); a.Is4() {
		sa := (*unix.RawSockaddrInet4)(unsafe.Pointer(&b.names[i]))
		sa.Family, sa.Addr = unix.AF_INET, a.As4()
		putPort(&sa.Port, to.Port())
		h.Namelen = unix.SizeofSockaddrInet4
		return
	}
	sa := &b.names[i]
	*sa = unix.RawSockaddrInet6{Family: unix.AF_INET6, Addr: to.Addr().As16(), Scope_id: scope(to.Addr())}
	putPort(&sa.Port, to.Port())
	h.Namelen = unix.SizeofSockaddrInet6
}

// name is where message i came from.
func (b *batch) name(i int) netip.AddrPort {
	if b.names[i].Family == unix.AF_INET {
		sa := (*unix.RawSockaddrInet4)(unsafe.Pointer(&b.names[i]))
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), getPort(&sa.Port))
	}
	sa := &b.names[i]
	a := netip.AddrFrom16(sa.Addr)
	if sa.Scope_id != 0 {
		a = a.WithZone(strconv.FormatUint(uint64(sa.Scope_id), 10))
	}
	return netip.AddrPortFrom(a, getPort(&sa.Port))
}

func putPort(at *uint16, port uint16) {
	binary.BigEndian.PutUint16((*[2]byte)(unsafe.Pointer(at))[:], port)
}

func getPort(at *uint16) uint16 { return binary.BigEndian.Uint16((*[2]byte)(unsafe.Pointer(at))[:]) }

// scope is the index of a zone, which may be a link's name.
func scope(a netip.Addr) uint32 {
	z := a.Zone()
	if z == "" {
		return 0
	}
	if n, err := strconv.ParseUint(z, 10, 32); err == nil {
		return uint32(n)
	}
	if link, err := net.InterfaceByName(z); err == nil {
		return uint32(link.Index)
	}
	return 0
}

// setControl writes the control messages of message i: the address that it leaves
// from, if that is known, and the size of its segments, if it has several.
func (b *batch) setControl(i int, from netip.Addr, segment int) {
	c := b.ctl[i][:]
	n := 0
	switch {
	case from.Is4():
		n += putControl(c[n:], unix.IPPROTO_IP, unix.IP_PKTINFO, unix.SizeofInet4Pktinfo)
		(*unix.Inet4Pktinfo)(unsafe.Pointer(&c[unix.CmsgLen(0)])).Spec_dst = from.As4()
	case from.Is6():
		n += putControl(c[n:], unix.IPPROTO_IPV6, unix.IPV6_PKTINFO, unix.SizeofInet6Pktinfo)
		info := (*unix.Inet6Pktinfo)(unsafe.Pointer(&c[unix.CmsgLen(0)]))
		info.Addr, info.Ifindex = from.As16(), scope(from)
	}
	if segment > 0 {
		at := n
		n += putControl(c[n:], unix.SOL_UDP, unix.UDP_SEGMENT, 2)
		binary.NativeEndian.PutUint16(c[at+unix.CmsgLen(0):], uint16(segment))
	}
	h := &b.msgs[i].hdr
	h.Control = nil
	if n > 0 {
		h.Control = &c[0]
	}
	h.SetControllen(n)
}

// putControl writes the head of a control message and zeroes its data.
func putControl(c []byte, level, kind int32, size int) int {
	space := unix.CmsgSpace(size)
	clear(c[:space])
	h := (*unix.Cmsghdr)(unsafe.Pointer(&c[0]))
	h.Level, h.Type = level, kind
	h.SetLen(unix.CmsgLen(size))
	return space
}

// control reads what came with message i: the address that it came to, and the size of
// the segments that it was joined of, 0 for one alone.
func (b *batch) control(i int) (local netip.Addr, segment int) {
	h := &b.msgs[i].hdr
	c := b.ctl[i][:min(int(h.Controllen), controlSize)]
	for len(c) >= unix.SizeofCmsghdr {
		m := (*unix.Cmsghdr)(unsafe.Pointer(&c[0]))
		size := int(m.Len)
		if size < unix.SizeofCmsghdr || size > len(c) {
			break
		}
		data := c[unix.CmsgLen(0):size]
		switch {
		case m.Level == unix.SOL_UDP && m.Type == unix.UDP_GRO && len(data) >= 2:
			segment = int(binary.NativeEndian.Uint16(data))
		case m.Level == unix.IPPROTO_IP && m.Type == unix.IP_PKTINFO && len(data) >= unix.SizeofInet4Pktinfo:
			local = netip.AddrFrom4((*unix.Inet4Pktinfo)(unsafe.Pointer(&data[0])).Spec_dst)
		case m.Level == unix.IPPROTO_IPV6 && m.Type == unix.IPV6_PKTINFO && len(data) >= unix.SizeofInet6Pktinfo:
			info := (*unix.Inet6Pktinfo)(unsafe.Pointer(&data[0]))
			local = netip.AddrFrom16(info.Addr)
			if local.IsLinkLocalUnicast() {
				local = local.WithZone(strconv.FormatUint(uint64(info.Ifindex), 10))
			}
		}
		c = c[min(len(c), unix.CmsgSpace(size-unix.CmsgLen(0))):]
	}
	return local, segment
}
