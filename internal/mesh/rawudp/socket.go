// SPDX-License-Identifier: Apache-2.0

package rawudp

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/socket"
	"github.com/tombolo-io/tombolo/internal/mesh/datagram"
	"github.com/tombolo-io/tombolo/internal/mesh/disco"
	"github.com/tombolo-io/tombolo/internal/mesh/tunnel"
)

// Settings are those of a Socket.
type Settings struct {
	Port uint16 // of the socket's owner
	Mark uint32 // SO_MARK, so that our own rules send nothing of it into the mesh
}

// Socket sends from the port of another socket of this machine, and hears what comes to it.
type Socket struct {
	set      Settings
	families []*family // one or two
	sizing   sync.RWMutex
	handling sync.Mutex
}

// family is a raw socket of one IP version.
type family struct {
	conn *net.IPConn
	raw  syscall.RawConn
	v6   bool
}

// Able says why this process cannot share a port. It changes nothing.
func Able() *fault.Fault {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_UDP)
	if err == nil {
		err = unix.Close(fd)
	}
	if err == nil {
		return nil
	}
	return fault.New(fault.CodeUnsupported, "probes at the port of the kernel's WireGuard").Because(err).
		Hint("run it as root, or give it CAP_NET_RAW; mesh.engine: userspace does without")
}

// Open opens it. The port is that of a socket which is open already, or will be.
func Open(ctx context.Context, set Settings) (*Socket, error) {
	s := &Socket{set: set}
	for _, v6 := range []bool{false, true} {
		f, err := openFamily(ctx, set, v6)
		if errors.Is(err, syscall.EAFNOSUPPORT) {
			continue
		}
		if errors.Is(err, os.ErrPermission) {
			if f := Able(); f != nil {
				err = f
			}
		}
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		s.families = append(s.families, f)
	}
	if len(s.families) == 0 {
		return nil, fault.New(fault.CodeUnsupported, "UDP").Whyf("the kernel has neither IPv4 nor IPv6")
	}
	return s, nil
}

func openFamily(ctx context.Context, set Settings, v6 bool) (*family, error) {
	network, all := "ip4:udp", "0.0.0.0"
	if v6 {
		network, all = "ip6:udp", "::"
	}
	lc := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		if err := socket.Mark(raw, set.Mark); err != nil {
			return err
		}
		var err error
		if e := raw.Control(func(fd uintptr) { err = options(int(fd), set.Port, v6) }); e != nil {
			return e
		}
		return err
	}}
	pc, err := lc.ListenPacket(ctx, network, all)
	if err != nil {
		return nil, err
	}
	f := &family{conn: pc.(*net.IPConn), v6: v6}
	if f.raw, err = f.conn.SyscallConn(); err != nil {
		return nil, errors.Join(err, f.conn.Close())
	}
	return f, nil
}

func options(fd int, port uint16, v6 bool) error {
	if err := datagram.SetFilter(fd, filter(port, v6)); err != nil {
		return err
	}
	if err := datagram.SetInfo(fd, v6); err != nil {
		return err
	}
	return datagram.SetDiscovery(fd, v6, unix.IP_PMTUDISC_DONT)
}

func (f *family) discovery(how int) error {
	var err error
	if e := f.raw.Control(func(fd uintptr) { err = datagram.SetDiscovery(int(fd), f.v6, how) }); e != nil {
		return e
	}
	return err
}

// Port is the one that is shared.
func (s *Socket) Port() uint16 { return s.set.Port }

// Has reports whether an address of this family can be sent to.
func (s *Socket) Has(a netip.Addr) bool { return s.family(a) != nil }

func (s *Socket) family(a netip.Addr) *family {
	v6 := a.Unmap().Is6()
	for _, f := range s.families {
		if f.v6 == v6 {
			return f
		}
	}
	return nil
}

// Run hands over probes and STUN until ctx ends, one at a time.
func (s *Socket) Run(ctx context.Context, to tunnel.Handlers) error {
	g := run.NewGroup(ctx)
	for _, f := range s.families {
		g.Go("probes at the kernel's port", func(ctx context.Context) error { return s.read(ctx, f, to) })
	}
	return g.Wait()
}

func (s *Socket) read(ctx context.Context, f *family, to tunnel.Handlers) error {
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
		b, ok := into[:n], true
		if !f.v6 {
			b, ok = within(b)
		}
		port, at, data, whole := parse(b)
		if !ok || !whole || at != s.set.Port { // what came before the filter
			continue
		}
		a, _ := netip.AddrFromSlice(from.IP)
		s.hand(to, netip.AddrPortFrom(a.Unmap().WithZone(from.Zone), port), datagram.Arrived(control[:size], f.v6), data)
	}
}

func (s *Socket) hand(to tunnel.Handlers, from netip.AddrPort, local netip.Addr, data []byte) {
	s.handling.Lock()
	defer s.handling.Unlock()
	switch kind := disco.KindOf(data); {
	case kind == disco.Probe && to.Probe != nil:
		to.Probe(from, local, data)
	case kind == disco.STUN && to.STUN != nil:
		to.STUN(from, local, data)
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
