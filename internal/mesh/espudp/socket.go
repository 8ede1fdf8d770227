// SPDX-License-Identifier: Apache-2.0

package espudp

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/mesh/disco"
	"github.com/tombolo-io/tombolo/internal/mesh/nat"
	"github.com/tombolo-io/tombolo/internal/mesh/tunnel"
)

// Port is that of ESP in UDP (RFC 3948 section 2.1).
const Port = 4500

// Settings are those of a socket.
type Settings struct {
	Port uint16 // 0: the kernel chooses
	Mark uint32 // SO_MARK, so that our own rules send nothing of it into the mesh
}

// Socket is the port of ESP in UDP, of IPv4 and IPv6, in the network namespace in which it was opened. It offers what
// tunnel.Socket does; nothing that it sends or hands over has the marker. The kernel takes ESP as long as the socket is
// open, and the rest is read while Run runs.
type Socket struct {
	port     uint16
	families []*family // one or two
	probes   *queue
	stuns    *queue
	quic     *Packets
	sizing   sync.RWMutex
	counts   tunnel.Counts
}

// Open opens the port.
func Open(ctx context.Context, set Settings) (*Socket, error) {
	s := &Socket{}
	s.probes = newQueue(limit.TunnelProbes, &s.counts.Probes)
	s.stuns = newQueue(limit.TunnelSTUN, &s.counts.STUN)
	s.quic = &Packets{socket: s, queue: newQueue(quicPackets, &s.counts.Inject)}
	s.quic.deadline.init()
	var err error
	for range tries {
		if err = s.open(ctx, set); set.Port != 0 || !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
	}
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fault.Newf(fault.CodeAddressBusy, "UDP port %d, for ESP in UDP", set.Port).Because(err).
			Hint("another daemon for IPsec listens there, such as strongSwan? Choose another port, or end it")
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (s *Socket) open(ctx context.Context, set Settings) error {
	s.families, s.port = nil, set.Port
	for _, v6 := range []bool{false, true} {
		f, err := openFamily(ctx, v6, s.port, set.Mark)
		if errors.Is(err, syscall.EAFNOSUPPORT) {
			continue
		}
		if err != nil {
			return errors.Join(err, s.Close())
		}
		s.families = append(s.families, f)
		s.port = f.conn.LocalAddr().(*net.UDPAddr).AddrPort().Port()
	}
	if len(s.families) == 0 {
		return fault.New(fault.CodeUnsupported, "UDP").Whyf("the kernel has neither IPv4 nor IPv6")
	}
	return nil
}

func openFamily(ctx context.Context, v6 bool, port uint16, mark uint32) (*family, error) {
	network := "udp4"
	if v6 {
		network = "udp6"
	}
	lc := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error { return setUp(raw, v6, mark) }}
	pc, err := lc.ListenPacket(ctx, network, ":"+strconv.Itoa(int(port)))
	if err != nil {
		return nil, err
	}
	f := &family{conn: pc.(*net.UDPConn), v6: v6}
	if f.raw, err = f.conn.SyscallConn(); err != nil {
		return nil, errors.Join(err, f.conn.Close())
	}
	return f, nil
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

// Packets are those of QUIC: there is one of them for a socket.
func (s *Socket) Packets() *Packets { return s.quic }

// Drops are what was dropped, by the reasons of tunnel.DropReasons: QUIC's are in its queue. What was dropped of ESP
// the kernel counts.
func (s *Socket) Drops() []tunnel.Drop { return s.counts.Drops(0) }

// Run reads, and hands probes and STUN on until ctx ends. Handlers of one kind are not called at the same time.
func (s *Socket) Run(ctx context.Context, to tunnel.Handlers) error {
	g := run.NewGroup(ctx)
	g.Go("probes", func(ctx context.Context) error { return hand(ctx, s.probes, to.Probe) })
	g.Go("STUN", func(ctx context.Context) error { return hand(ctx, s.stuns, to.STUN) })
	for _, f := range s.families {
		g.Go("ESP in UDP", func(ctx context.Context) error { return s.read(ctx, f) })
	}
	return g.Wait()
}

func (s *Socket) read(ctx context.Context, f *family) error {
	stop := run.OnDone(ctx, func() { _ = f.conn.SetReadDeadline(time.Unix(1, 0)) }) // one that is closed has ended
	defer stop()
	into := make([]byte, len(nat.Marker)+packetBytes+1) // one byte more, to detect a longer one
	for failures := 0; ; {
		p, err := f.read(into)
		switch {
		case ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			return nil
		case err != nil:
			s.counts.Failed.Add(1)
			failures++
			if !run.Wait(ctx, run.Backoff(failures, time.Second, 1)) {
				return nil
			}
			continue
		}
		failures = 0
		s.sort(p)
	}
}

// sort hands a packet to who wants it.
func (s *Socket) sort(p packet) {
	kind, data := kindOf(p.data)
	p.data = data
	switch kind {
	case probe:
		s.probes.put(p)
	case stun:
		s.stuns.put(p)
	case quic:
		s.quic.queue.put(p)
	default:
		s.counts.Unknown.Add(1)
	}
}

// kind is what is behind a marker.
type kind int

const (
	unknown kind = iota
	probe
	stun
	quic
)

// kindOf tells what came apart. Without a marker come only packets that are too short to be ESP.
func kindOf(b []byte) (kind, []byte) {
	if len(b) < len(nat.Marker) || string(b[:len(nat.Marker)]) != nat.Marker {
		return unknown, nil
	}
	b = b[len(nat.Marker):]
	switch disco.KindOf(b) {
	case disco.Probe: // its first bytes would be those of QUIC in a version that there is not
		return probe, b
	case disco.STUN:
		return stun, b
	}
	if len(b) > 0 && b[0]&quicFixed != 0 {
		return quic, b
	}
	return unknown, nil
}

// quicFixed is in the first byte of each packet of QUIC (RFC 9000 section 17), and in none of STUN.
const quicFixed = 0x40

func hand(ctx context.Context, q *queue, to tunnel.Handler) error {
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
	s.quic.close()
	var errs []error
	for _, f := range s.families {
		errs = append(errs, f.conn.Close())
	}
	return errors.Join(errs...)
}
