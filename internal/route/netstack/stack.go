// SPDX-License-Identifier: Apache-2.0

// Package netstack ends the TCP of connections whose packets come from a TUN device, whatever their destination, with
// gVisor's network stack, and takes the datagrams of UDP and echo requests. Each connection is offered to a Handler
// before its SYN is answered, and each flow of datagrams before its first is taken: it is accepted or refused. It does
// not dial, and does not know where they lead.
//
//	TUN ──► look ──TCP──► forwarder ──SYN──► Handler ──Accept──► Conn
//	 ▲        │ UDP, echo ──► flow ──first──►   │ Refuse
//	 └────────┴──────── RST, ICMP ◄─────────────┘
package netstack

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/run"
)

// Device is where packets come from and go to: a TUN. Its packets begin at an offset, which leaves room for headers.
type Device interface {
	Read(bufs [][]byte, sizes []int, offset int) (int, error)
	Write(bufs [][]byte, offset int) (int, error)
	BatchSize() int
	Close() error
}

// Handler decides about one connection: it calls Accept or Refuse, once. It may take its time. ctx ends when the caller
// has given up, or the stack ends.
type Handler func(ctx context.Context, c *Coming)

// Options of a stack.
type Options struct {
	MTU     int
	Handle  Handler
	Dropped func(why Drop) // counts packets that are not taken, or do not fit
}

// Stack is a network stack over a device.
type Stack struct {
	o     Options
	dev   Device
	stack *stack.Stack
	link  *link
	fwd   *tcp.Forwarder
	ctx   context.Context
	end   context.CancelFunc
	group *run.Group

	mu      sync.Mutex
	pending map[stack.TransportEndpointID]*pending
	flows   map[flowKey]*flow
	waits   atomic.Int64 // bytes in the queues of flows
}

// pending is a connection about which nothing is decided yet.
type pending struct {
	head   []byte // of its SYN: what an ICMP message has to quote
	cancel context.CancelFunc
	ctx    context.Context
}

const nic = 1

// New makes a stack. It ends with Run, or with Close if it never runs.
func New(ctx context.Context, dev Device, o Options) (*Stack, error) {
	s := &Stack{o: o, dev: dev, pending: map[stack.TransportEndpointID]*pending{}, flows: map[flowKey]*flow{}}
	s.ctx, s.end = context.WithCancel(ctx)
	s.group = run.NewGroup(s.ctx)
	s.link = newLink(s.ctx, uint32(o.MTU))
	s.stack = stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, ipv6.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol},
		HandleLocal:        false,
	})
	if err := s.prepare(); err != nil {
		s.Close()
		return nil, fault.New(fault.CodeInternal, "the network stack cannot be made").Because(err)
	}
	return s, nil
}

func (s *Stack) prepare() error {
	sack, moderate := tcpip.TCPSACKEnabled(true), tcpip.TCPModerateReceiveBufferOption(true)
	var errs []error
	note := func(err tcpip.Error) {
		if err != nil {
			errs = append(errs, errors.New(err.String()))
		}
	}
	note(s.stack.SetTransportProtocolOption(tcp.ProtocolNumber, &sack))
	note(s.stack.SetTransportProtocolOption(tcp.ProtocolNumber, &moderate))
	note(s.stack.CreateNIC(nic, s.link))
	note(s.stack.SetPromiscuousMode(nic, true)) // takes packets for every address
	note(s.stack.SetSpoofing(nic, true))        // and answers from it
	s.stack.SetRouteTable([]tcpip.Route{
		{Destination: header.IPv4EmptySubnet, NIC: nic}, {Destination: header.IPv6EmptySubnet, NIC: nic},
	})
	s.fwd = tcp.NewForwarder(s.stack, 0, mostPending, s.handle)
	s.stack.SetTransportProtocolHandler(tcp.ProtocolNumber, s.arrive)
	return errors.Join(errs...)
}

// Run carries packets until ctx ends or the device is closed. It closes the device. Connections that live are reset.
func (s *Stack) Run(ctx context.Context) error {
	defer run.OnDone(ctx, func() { s.dev.Close(); s.end() })()
	g := run.NewGroup(ctx)
	g.Go("reading the TUN device", func(context.Context) error { return s.read() })
	g.Go("writing the TUN device", func(context.Context) error { return s.write() })
	<-s.ctx.Done()
	s.dev.Close()
	s.Close()
	err := g.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// Close ends the stack, and waits for the handlers.
func (s *Stack) Close() {
	s.end()
	s.stack.Close()
	s.mu.Lock()
	flows := slices.Collect(maps.Values(s.flows))
	s.mu.Unlock()
	for _, f := range flows {
		f.close()
	}
	s.group.Wait()
	s.stack.Wait()
}

// read gives the packets of the device to the stack.
func (s *Stack) read() error {
	defer s.end()
	n := min(s.dev.BatchSize(), splits)
	bufs, sizes := make([][]byte, n), make([]int, n)
	for i := range bufs {
		bufs[i] = make([]byte, s.o.MTU+offset)
	}
	for {
		n, err := s.dev.Read(bufs, sizes, offset)
		for i := range n {
			s.take(bufs[i][offset : offset+sizes[i]])
		}
		if errors.Is(err, os.ErrClosed) || s.ctx.Err() != nil {
			return nil
		}
		if err != nil && n == 0 && fatal(err) {
			return fault.New(fault.CodeKernel, "the TUN device cannot be read").Because(err)
		}
	}
}

// take looks at one packet, which is only valid until it returns.
func (s *Stack) take(packet []byte) {
	look := lookAt(packet)
	switch {
	case look.why != "":
		s.o.Dropped(look.why)
		return
	case look.flow.network != "":
		s.datagram(look.flow, packet, look.payload)
		return
	}
	pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(packet)})
	protocol := header.IPv4ProtocolNumber
	if look.six {
		protocol = header.IPv6ProtocolNumber
	}
	s.link.InjectInbound(protocol, pkt)
	pkt.DecRef()
}

// arrive takes every TCP packet that belongs to no connection.
func (s *Stack) arrive(id stack.TransportEndpointID, pkt *stack.PacketBuffer) bool {
	flags := header.TCP(pkt.TransportHeader().Slice()).Flags()
	s.mu.Lock()
	defer s.mu.Unlock()
	before, known := s.pending[id]
	if known && flags.Contains(header.TCPFlagRst) {
		before.cancel()
		return true
	}
	if s.ctx.Err() != nil || !known && len(s.pending) >= mostPending {
		return true // the caller sends its SYN again
	}
	if !known {
		p := &pending{head: headOf(pkt)}
		p.ctx, p.cancel = context.WithCancel(s.ctx)
		s.pending[id] = p
	}
	if s.fwd.HandlePacket(id, pkt) {
		return true
	}
	if !known {
		s.pending[id].cancel()
		delete(s.pending, id)
	}
	return false
}

// handle is called by the forwarder, in a goroutine for each connection.
func (s *Stack) handle(r *tcp.ForwarderRequest) {
	id := r.ID()
	s.mu.Lock()
	p := s.pending[id]
	s.mu.Unlock()
	ctx, done := s.group.Begin()
	defer done()
	c := &Coming{
		Network: TCP, From: addrPort(id.RemoteAddress, id.RemotePort), To: addrPort(id.LocalAddress, id.LocalPort),
		stack: s, request: r, id: id, pending: p,
	}
	if ctx.Err() == nil {
		s.o.Handle(p.ctx, c)
	}
	c.forget()
}

// decided ends the wait of a connection. Its SYN counts as a new one from here on.
func (s *Stack) decided(id stack.TransportEndpointID, p *pending, complete func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	complete()
	delete(s.pending, id)
	p.cancel()
}

func addrPort(a tcpip.Address, port uint16) netip.AddrPort {
	addr, _ := netip.AddrFromSlice(a.AsSlice())
	return netip.AddrPortFrom(addr, port)
}

// failed is an error of the stack as one of Go.
func failed(what string, err tcpip.Error) error { return fmt.Errorf("%s: %s", what, err) }
