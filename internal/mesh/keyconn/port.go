// SPDX-License-Identifier: Apache-2.0

package keyconn

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"

	"github.com/quic-go/quic-go"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/run"
)

// Packets are those of QUIC on a socket that carries other things too: *espudp.Packets. Its addresses have to be of the
// type address.
type Packets interface {
	net.PacketConn
	Address(to netip.AddrPort, local netip.Addr) net.Addr
}

// address is that of a connection: the other end, and the address of this machine. Its text is the other end's.
type address interface {
	net.Addr
	Ends() (to netip.AddrPort, local netip.Addr)
}

// Port opens connections, and accepts those of others while it runs.
type Port struct {
	packets   Packets
	transport *quic.Transport
	listener  *quic.Listener
	known     func(netip.Addr) bool
	slots     *slots
}

// Open makes the port. Its socket has to be read, and to stay open until Close.
//
//	server: of this node for whoever connects (keyexchange.Identity.Server)
//	known: reports whether an address is one of a peer, which others cannot keep out; called for each connection
func Open(p Packets, server *tls.Config, known func(netip.Addr) bool) (*Port, error) {
	x := &Port{packets: p, known: known, slots: newSlots()}
	x.transport = &quic.Transport{
		Conn:                             p,
		ConnectionIDLength:               8,
		DisableVersionNegotiationPackets: true,
		VerifySourceAddress:              func(net.Addr) bool { return x.slots.crowded() },
		ConnContext:                      x.admit,
	}
	var err error
	if x.listener, err = x.transport.Listen(server, settings(1)); err != nil {
		return nil, errors.Join(fault.New(fault.CodeInternal, "QUIC").Because(err), x.transport.Close())
	}
	return x, nil
}

// settings are those of a connection.
//
//	streams: that the other end may open
func settings(streams int64) *quic.Config {
	if streams == 0 {
		streams = -1 // in QUIC's library 0 is its default
	}
	return &quic.Config{
		Versions:                       []quic.Version{quic.Version1},
		HandshakeIdleTimeout:           handshakeWithin / 2, // the whole may last twice as long
		MaxIdleTimeout:                 handshakeWithin,
		InitialStreamReceiveWindow:     window,
		MaxStreamReceiveWindow:         window,
		InitialConnectionReceiveWindow: window,
		MaxConnectionReceiveWindow:     window,
		MaxIncomingStreams:             streams,
		MaxIncomingUniStreams:          -1,
		InitialPacketSize:              packetBytes,
		DisablePathMTUDiscovery:        true,
	}
}

// admit lets a connection begin, or refuses it. It is asked for each first packet of one.
func (p *Port) admit(ctx context.Context, info *quic.ClientInfo) (context.Context, error) {
	a, ok := info.RemoteAddr.(address)
	if !ok {
		return nil, fault.New(fault.CodeInternal, "QUIC").Whyf("an address is of another socket")
	}
	to, _ := a.Ends()
	back, ok := p.slots.take(to.Addr(), p.known(to.Addr().Unmap()))
	if !ok {
		return nil, fault.New(fault.CodeLimit, "connections of nodes")
	}
	run.OnDone(ctx, back)
	return ctx, nil
}

// Dial opens a connection. It ends with ctx, and after connWithin at the latest.
//
//	local: the address to send from; not valid: the kernel chooses
//	client: of this node for that peer (keyexchange.Identity.Client)
func (p *Port) Dial(ctx context.Context, to netip.AddrPort, local netip.Addr, client *tls.Config) (*Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connWithin)
	q, err := p.transport.Dial(ctx, p.packets.Address(to, local), client, settings(0))
	if err != nil {
		cancel()
		return nil, failed(to, err)
	}
	stream, err := q.OpenStreamSync(ctx)
	if err != nil {
		cancel()
		return nil, errors.Join(failed(to, err), q.CloseWithError(codeEnded, ""))
	}
	return newConn(ctx, cancel, q, stream), nil
}

// Run accepts connections until ctx ends, then it ends those that there are.
//
//	handle: called for each of them in a goroutine of its own; the connection is closed behind it
func (p *Port) Run(ctx context.Context, handle func(context.Context, *Conn)) error {
	g := run.NewGroup(ctx)
	g.Go("connections of nodes", func(ctx context.Context) error {
		for {
			q, err := p.listener.Accept(ctx)
			if err != nil {
				if ctx.Err() != nil {
					return nil
				}
				return fault.New(fault.CodeInternal, "QUIC").Because(err)
			}
			g.Do(func(ctx context.Context) { serve(ctx, q, handle) })
		}
	})
	return g.Wait()
}

func serve(ctx context.Context, q *quic.Conn, handle func(context.Context, *Conn)) {
	ctx, cancel := context.WithTimeout(ctx, connWithin)
	stream, err := q.AcceptStream(ctx) // it is there with its first bytes
	if err != nil {
		cancel()
		_ = q.CloseWithError(codeEnded, "") // it has no error
		return
	}
	c := newConn(ctx, cancel, q, stream)
	c.accepted = true
	handle(ctx, c)
	_ = c.Close() // the opener knows by itself that it has lost something
}

// Close ends all connections.
func (p *Port) Close() error {
	if err := p.transport.Close(); err != nil {
		return fault.New(fault.CodeInternal, "QUIC").Because(err)
	}
	return nil
}
