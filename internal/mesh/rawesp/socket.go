// SPDX-License-Identifier: Apache-2.0

package rawesp

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/socket"
	"github.com/tombolo-io/tombolo/internal/mesh/datagram"
)

// Socket sends and hears packets of protocol 50 in both IP versions, as far as there are two.
type Socket struct {
	families []*family
	handling sync.Mutex
}

// family is a raw socket of one IP version.
type family struct {
	conn *net.IPConn
	v6   bool
}

// Open opens it.
//
//	mark: SO_MARK, so that our own rules send nothing of it into the mesh
func Open(ctx context.Context, mark uint32) (*Socket, error) {
	s := &Socket{}
	for _, v6 := range []bool{false, true} {
		f, err := openFamily(ctx, mark, v6)
		if errors.Is(err, syscall.EAFNOSUPPORT) {
			continue
		}
		if errors.Is(err, os.ErrPermission) {
			err = fault.New(fault.CodeUnsupported, "ESP without UDP").Because(err).
				Hint("run it as root, or give it CAP_NET_RAW; mesh.ipsec.esp: udp does without")
		}
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		s.families = append(s.families, f)
	}
	return s, nil
}

func openFamily(ctx context.Context, mark uint32, v6 bool) (*family, error) {
	network, all := "ip4:50", "0.0.0.0"
	if v6 {
		network, all = "ip6:50", "::"
	}
	lc := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		if err := socket.Mark(raw, mark); err != nil {
			return err
		}
		var err error
		if e := raw.Control(func(fd uintptr) { err = options(int(fd), v6) }); e != nil {
			return e
		}
		return err
	}}
	pc, err := lc.ListenPacket(ctx, network, all)
	if err != nil {
		return nil, err
	}
	return &family{conn: pc.(*net.IPConn), v6: v6}, nil
}

func options(fd int, v6 bool) error {
	if err := datagram.SetFilter(fd, filter(v6)); err != nil {
		return err
	}
	return datagram.SetInfo(fd, v6)
}

// Send sends one packet from an address of this machine.
func (s *Socket) Send(to, local netip.Addr, data []byte) error {
	for _, f := range s.families {
		if f.v6 == to.Unmap().Is6() {
			return f.write(to.Unmap(), local.Unmap(), compose(data))
		}
	}
	return unix.EAFNOSUPPORT
}

func (f *family) write(to, local netip.Addr, packet []byte) error {
	control := (&ipv4.ControlMessage{Src: local.AsSlice()}).Marshal()
	if f.v6 {
		control = (&ipv6.ControlMessage{Src: local.AsSlice()}).Marshal()
	}
	_, _, err := f.conn.WriteMsgIP(packet, control, &net.IPAddr{IP: to.AsSlice(), Zone: to.Zone()})
	return err
}

// Run hands over what comes until ctx ends, one at a time. Data is good until take returns.
func (s *Socket) Run(ctx context.Context, take func(from, local netip.Addr, data []byte)) error {
	g := run.NewGroup(ctx)
	for _, f := range s.families {
		g.Go("protocol 50", func(ctx context.Context) error { return s.read(ctx, f, take) })
	}
	<-g.Context().Done()
	return g.Wait()
}

func (s *Socket) read(ctx context.Context, f *family, take func(from, local netip.Addr, data []byte)) error {
	stop := run.OnDone(ctx, func() { _ = f.conn.SetReadDeadline(time.Unix(1, 0)) }) // one that is closed has ended
	defer stop()
	into, control := make([]byte, packetBytes), make([]byte, 128)
	for failures := 0; ; {
		n, size, _, from, err := f.conn.ReadMsgIP(into, control)
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
		a, _ := netip.AddrFromSlice(from.IP)
		if data, ok := parse(into[:n], f.v6); ok { // else it came before the filter
			s.handling.Lock()
			take(a.Unmap(), datagram.Arrived(control[:size], f.v6), data)
			s.handling.Unlock()
		}
	}
}

// Close closes it.
func (s *Socket) Close() error {
	var errs []error
	for _, f := range s.families {
		errs = append(errs, f.conn.Close())
	}
	return errors.Join(errs...)
}
