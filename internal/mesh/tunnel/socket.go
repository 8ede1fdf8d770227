// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/mesh/datagram"
)

// Handler takes a packet that is not WireGuard's: where it came from, and to which
// address of this machine. The bytes are its own until it returns.
type Handler func(from netip.AddrPort, local netip.Addr, packet []byte)

// SocketConfig is what a Socket is made of.
type SocketConfig struct {
	Port     uint16 // 0: the kernel chooses
	Mark     uint32 // SO_MARK, so that our own rules send nothing of it into the mesh
	Offloads Offloads
}

// Handlers take what a Socket reads that is not WireGuard's; each may be nil.
type Handlers struct {
	Probe, STUN Handler
}

// Socket is one UDP port, IPv4 and IPv6, for WireGuard, STUN and probes. It is read
// while an Engine is up.
type Socket struct {
	port     uint16
	families []*family // one or two
	probes   *queue
	stuns    *queue
	offloads *offloads
	batches  sync.Pool // of *batch, for sends
	sizing   sync.RWMutex

	sessions sessions
	counts   Counts
}

// family is one of the two sockets.
type family struct {
	conn *net.UDPConn
	raw  syscall.RawConn
	v6   bool
	gso  atomic.Bool
	gro  atomic.Bool
	in   *reader
	give func(*batch) error // sends what it can of a batch
}

// OpenSocket opens the port. What the offloads promise is tried over loopback
// first, and left where it does not work.
func OpenSocket(ctx context.Context, cfg SocketConfig) (*Socket, error) {
	s := &Socket{offloads: &offloads{}}
	s.probes = newQueue(limit.TunnelProbes, tunnelProbe, &s.counts.Probes)
	s.stuns = newQueue(limit.TunnelSTUN, tunnelProbe, &s.counts.STUN)
	s.batches.New = func() any { return newBatch() }
	s.sessions.init()
	gso, gro := s.tryOffloads(ctx, cfg.Offloads)
	const tries = 100 // a port that is free for IPv4 may be taken for IPv6
	var err error
	for range tries {
		err = s.open(ctx, cfg, gro)
		if cfg.Port != 0 || !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
	}
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fault.Newf(fault.CodeAddressBusy, "UDP port %d", cfg.Port).Because(err).
			Hint("another WireGuard listens there? Choose another port, or end it")
	case err != nil:
		return nil, err
	}
	for _, f := range s.families {
		f.gso.Store(gso)
		f.gro.Store(gro)
	}
	return s, nil
}

func (s *Socket) open(ctx context.Context, cfg SocketConfig, gro bool) error {
	s.families = nil
	port := cfg.Port
	for _, v6 := range []bool{false, true} {
		f, err := openFamily(ctx, v6, port, cfg.Mark, gro)
		if errors.Is(err, syscall.EAFNOSUPPORT) {
			continue
		}
		if err != nil {
			return errors.Join(err, s.Close())
		}
		s.families = append(s.families, f)
		port = f.conn.LocalAddr().(*net.UDPAddr).AddrPort().Port()
	}
	if len(s.families) == 0 {
		return fault.New(fault.CodeUnsupported, "UDP").Whyf("the kernel has neither IPv4 nor IPv6")
	}
	s.port = port
	return nil
}

func openFamily(ctx context.Context, v6 bool, port uint16, mark uint32, gro bool) (*family, error) {
	network := "udp4"
	if v6 {
		network = "udp6"
	}
	lc := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var err error
		if e := raw.Control(func(fd uintptr) { err = setUp(int(fd), v6, mark, gro) }); e != nil {
			return e
		}
		return err
	}}
	pc, err := lc.ListenPacket(ctx, network, ":"+strconv.Itoa(int(port)))
	if err != nil {
		return nil, err
	}
	c := pc.(*net.UDPConn)
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	give := func(b *batch) error { return raw.Write(b.send) }
	return &family{conn: c, raw: raw, v6: v6, in: newReader(), give: give}, nil
}

// setUp sets the options of a socket. Ordinary packets are sent as IPv4's usual way
// is without path MTU discovery, and as the kernel's WireGuard sends them: routers may
// cut them. A black hole for large packets is found by probes instead.
func setUp(fd int, v6 bool, mark uint32, gro bool) error {
	for _, o := range []int{unix.SO_RCVBUFFORCE, unix.SO_SNDBUFFORCE} {
		if unix.SetsockoptInt(fd, unix.SOL_SOCKET, o, tunnelBuffer) == nil {
			continue
		}
		plain := map[int]int{unix.SO_RCVBUFFORCE: unix.SO_RCVBUF, unix.SO_SNDBUFFORCE: unix.SO_SNDBUF}[o]
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, plain, tunnelBuffer); err != nil { // as much as permitted
			return fmt.Errorf("socket buffer: %w", err)
		}
	}
	if err := datagram.SetInfo(fd, v6); err != nil {
		return err
	}
	if err := datagram.SetDiscovery(fd, v6, unix.IP_PMTUDISC_DONT); err != nil {
		return err
	}
	if mark != 0 {
		if err := setMark(fd, mark); err != nil {
			return err
		}
	}
	if gro {
		if err := unix.SetsockoptInt(fd, unix.SOL_UDP, unix.UDP_GRO, 1); err != nil {
			return fmt.Errorf("UDP_GRO: %w", err)
		}
	}
	return nil
}

func setMark(fd int, mark uint32) error {
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, int(mark)); err != nil {
		return fault.New(fault.CodeUnsupported, "mark of the mesh's socket").Because(err).
			Hint("it needs CAP_NET_ADMIN: run as root, or grant it")
	}
	return nil
}

// SetMark changes the mark of what is sent.
func (s *Socket) SetMark(mark uint32) error {
	return s.each(func(_ *family, fd int) error { return setMark(fd, mark) })
}

func (s *Socket) each(fn func(f *family, fd int) error) error {
	for _, f := range s.families {
		var err error
		if e := f.raw.Control(func(fd uintptr) { err = fn(f, int(fd)) }); e != nil {
			return e
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Port is the port of both families.
func (s *Socket) Port() uint16 { return s.port }

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

// Offloads are the states of those of UDP.
func (s *Socket) Offloads() []Offload {
	return []Offload{s.offloads.state(udpGSO), s.offloads.state(udpGRO)}
}

// Run hands probes and STUN on until ctx ends.
func (s *Socket) Run(ctx context.Context, to Handlers) error {
	g := run.NewGroup(ctx)
	g.Go("probes", func(ctx context.Context) error { return hand(ctx, s.probes, to.Probe) })
	g.Go("STUN", func(ctx context.Context) error { return hand(ctx, s.stuns, to.STUN) })
	return g.Wait()
}

func hand(ctx context.Context, q *queue, to Handler) error {
	for {
		select {
		case p := <-q.full:
			if to != nil {
				to(p.from, p.local, p.data)
			}
			q.back(p)
		case <-ctx.Done():
			return nil
		}
	}
}

// Close closes the port.
func (s *Socket) Close() error {
	var errs []error
	for _, f := range s.families {
		errs = append(errs, f.conn.Close())
	}
	return errors.Join(errs...)
}
