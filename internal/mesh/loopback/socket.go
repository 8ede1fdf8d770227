// SPDX-License-Identifier: Apache-2.0

package loopback

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/run"
)

// Socket is the port of all places, on the loopback link alone.
type Socket struct {
	conn   *net.UDPConn
	port   uint16
	kernel netip.AddrPort
}

// Open opens it for the port that the kernel has.
func Open(ctx context.Context, kernel uint16) (*Socket, error) {
	lc := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var err error
		if e := raw.Control(func(fd uintptr) { err = options(int(fd)) }); e != nil {
			return e
		}
		return err
	}}
	pc, err := lc.ListenPacket(ctx, "udp4", "0.0.0.0:0") // of any address, but by the loopback link alone
	if err != nil {
		return nil, fault.New(fault.CodeUnsupported, "the mesh's socket on the loopback link").Because(err).
			Hint("run it as root, or give it CAP_NET_ADMIN and CAP_NET_RAW; the link lo must exist")
	}
	c := pc.(*net.UDPConn)
	return &Socket{conn: c, port: c.LocalAddr().(*net.UDPAddr).AddrPort().Port(),
		kernel: netip.AddrPortFrom(local4(), kernel)}, nil
}

func options(fd int) error {
	for _, option := range []int{unix.SO_RCVBUFFORCE, unix.SO_SNDBUFFORCE} { // or as the kernel has it
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, option, buffer)
	}
	return errors.Join(unix.BindToDevice(fd, "lo"), unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_PKTINFO, 1))
}

// Port is that of all places.
func (s *Socket) Port() uint16 { return s.port }

// Send has the kernel get a packet from a place.
func (s *Socket) Send(from netip.Addr, packet []byte) error {
	_, _, err := s.conn.WriteMsgUDPAddrPort(packet, (&ipv4.ControlMessage{Src: from.AsSlice()}).Marshal(), s.kernel)
	return err
}

// Run hands over what the kernel's port has sent to places, until ctx ends. What anybody else sends is dropped.
func (s *Socket) Run(ctx context.Context, take func(to netip.Addr, packet []byte)) error {
	stop := run.OnDone(ctx, func() { _ = s.conn.SetReadDeadline(time.Unix(1, 0)) }) // one that is closed has ended
	defer stop()
	into, control := make([]byte, packetBytes), make([]byte, 64)
	for failures := 0; ; {
		n, size, _, from, err := s.conn.ReadMsgUDPAddrPort(into, control)
		switch {
		case ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			return nil
		case err != nil:
			failures++
			if !run.Wait(ctx, run.Backoff(failures, time.Second, 1)) {
				return nil
			}
			continue
		}
		failures = 0
		var cm ipv4.ControlMessage
		if from != s.kernel || cm.Parse(control[:size]) != nil {
			continue
		}
		if to, ok := netip.AddrFromSlice(cm.Dst.To4()); ok {
			take(to, into[:n])
		}
	}
}

// Close closes it.
func (s *Socket) Close() error { return s.conn.Close() }
