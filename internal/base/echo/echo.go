// SPDX-License-Identifier: Apache-2.0

// Package echo sends echo requests to one address, and reads their answers (RFC 792, RFC 4443). It waits for none.
package echo

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"syscall"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// echo sends echo requests to one address, and reads their answers (RFC 792, RFC 4443). A request is its sequence
// number in two bytes, big-endian, and its data; so is an answer.
type echo struct {
	echoSocket
	read        func(b []byte) (int, error) // an ICMP message
	asks, reply icmp.Type
	proto       int
	id          int // of our requests; 0: the kernel chooses one, and gives us the answers to it only
}

type echoSocket interface {
	net.Conn
	syscall.Conn
}

// Options say how requests are sent.
type Options struct {
	From netip.Addr // an address of this machine; zero: the kernel chooses
	// Whole has no request be sent in fragments: one that is larger than the path, as far as the kernel knows it, fails
	// with EMSGSIZE.
	Whole bool
}

// Open opens a socket for an address. It needs no privilege where net.ipv4.ping_group_range has our group, and
// CAP_NET_RAW elsewhere. Its errors are faults.
func Open(to netip.Addr) (net.Conn, error) { return OpenWith(to, Options{}) }

// OpenWith is Open with options.
func OpenWith(to netip.Addr, o Options) (net.Conn, error) {
	e := &echo{asks: ipv4.ICMPTypeEcho, reply: ipv4.ICMPTypeEchoReply, proto: unix.IPPROTO_ICMP}
	family, raw := unix.AF_INET, "ip4:icmp"
	var at unix.Sockaddr
	var local *net.IPAddr
	if o.From.IsValid() {
		local = &net.IPAddr{IP: o.From.AsSlice()}
	}
	if to.Is6() {
		e.asks, e.reply, e.proto = ipv6.ICMPTypeEchoRequest, ipv6.ICMPTypeEchoReply, unix.IPPROTO_ICMPV6
		family, raw, at = unix.AF_INET6, "ip6:ipv6-icmp", &unix.SockaddrInet6{Addr: to.As16()}
	} else {
		at = &unix.SockaddrInet4{Addr: to.As4()}
	}
	conn, err := connected(family, e.proto, at, o)
	if err == nil {
		e.echoSocket, e.read = conn, conn.Read
		return e, nil
	}
	if errors.Is(err, unix.EACCES) {
		conn, rawErr := net.DialIP(raw, local, &net.IPAddr{IP: to.AsSlice()})
		if rawErr == nil && o.Whole {
			if rawErr = wholeConn(conn, family); rawErr != nil {
				conn.Close()
			}
		}
		if rawErr == nil {
			e.echoSocket, e.id = conn, 1+rand.IntN(1<<16-1)
			e.read = func(b []byte) (int, error) {
				n, _, err := conn.ReadFromIP(b) // without the header of IPv4
				return n, err
			}
			return e, nil
		}
		return nil, fault.New(fault.CodeDialUnreachable, "this process may not send echo requests").
			Because(errors.Join(err, rawErr)).
			Hint("let it: sysctl -w net.ipv4.ping_group_range='0 2147483647' on this machine or in this pod, or CAP_NET_RAW")
	}
	return nil, fault.Newf(fault.CodeDialUnreachable, "%s cannot be reached from here", to).Because(err)
}

// whole has the kernel send a socket's packets without fragments.
func whole(fd, family int) error {
	level, option, value := unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO
	if family == unix.AF_INET6 {
		level, option, value = unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO
	}
	return os.NewSyscallError("setsockopt", unix.SetsockoptInt(fd, level, option, value))
}

func wholeConn(conn syscall.Conn, family int) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = whole(int(fd), family) })
	return errors.Join(err, failed)
}

func connected(family, proto int, to unix.Sockaddr, o Options) (*net.UDPConn, error) {
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, proto)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	file := os.NewFile(uintptr(fd), "echo requests")
	defer file.Close() // FileConn has one of its own
	if o.From.Is6() {
		err = unix.Bind(fd, &unix.SockaddrInet6{Addr: o.From.As16()})
	} else if o.From.IsValid() {
		err = unix.Bind(fd, &unix.SockaddrInet4{Addr: o.From.As4()})
	}
	if err != nil {
		return nil, os.NewSyscallError("bind", err)
	}
	if o.Whole {
		if err := whole(fd, family); err != nil {
			return nil, err
		}
	}
	if err := unix.Connect(fd, to); err != nil {
		return nil, os.NewSyscallError("connect", err)
	}
	conn, err := net.FileConn(file)
	if err != nil {
		return nil, err
	}
	udp, ok := conn.(*net.UDPConn)
	if !ok {
		conn.Close()
		return nil, errors.ErrUnsupported
	}
	return udp, nil
}

const sequence = 2

// Write sends a request. One that is too short is none.
func (e *echo) Write(b []byte) (int, error) {
	if len(b) < sequence {
		return len(b), nil
	}
	m := icmp.Message{Type: e.asks, Body: &icmp.Echo{ID: e.id, Seq: int(binary.BigEndian.Uint16(b)), Data: b[sequence:]}}
	text, err := m.Marshal(nil) // the kernel makes the checksum of ICMPv6
	if err != nil {
		return 0, err
	}
	if _, err := e.echoSocket.Write(text); err != nil {
		return 0, err
	}
	return len(b), nil
}

// Read reads the next answer.
func (e *echo) Read(b []byte) (int, error) {
	for {
		n, err := e.read(b)
		if err != nil {
			return 0, err
		}
		m, err := icmp.ParseMessage(e.proto, b[:n])
		if err != nil || m.Type != e.reply {
			continue
		}
		if body, ok := m.Body.(*icmp.Echo); ok && (e.id == 0 || body.ID == e.id) {
			binary.BigEndian.PutUint16(b, uint16(body.Seq))
			return sequence + copy(b[sequence:], body.Data), nil
		}
	}
}
