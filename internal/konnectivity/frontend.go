// SPDX-License-Identifier: Apache-2.0

// Package konnectivity serves kube-apiserver's GRPC egress protocol (KEP-1281
// as shipped by kubernetes-sigs/apiserver-network-proxy) on a unix socket. It
// owns the packet codec and the life of a proxied connection; how a target is
// reached is given to it. It does not serve the reference's agents.
package konnectivity

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"golang.org/x/net/netutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tombolo-io/tombolo/internal/carrier"
	"github.com/tombolo-io/tombolo/internal/fault"
	"github.com/tombolo-io/tombolo/internal/limit"
	"github.com/tombolo-io/tombolo/internal/run"
	"github.com/tombolo-io/tombolo/internal/splice"
	"github.com/tombolo-io/tombolo/internal/tell"
	"github.com/tombolo-io/tombolo/internal/wire"
)

// Frontend serves the protocol; one value serves many listeners.
type Frontend struct {
	log  *slog.Logger
	next atomic.Int64 // the newest connectID; 0 means none on the wire
}

// New makes a frontend.
func New(log *slog.Logger) *Frontend { return &Frontend{log: log} }

// Serve serves callers on ln until ctx ends; it owns ln.
func (f *Frontend) Serve(ctx context.Context, ln net.Listener, dial func(context.Context, wire.Dial) (carrier.Stream, error)) error {
	g := run.NewGroup(ctx)
	srv := grpc.NewServer(
		grpc.ForceServerCodecV2(codec{}),
		grpc.MaxConcurrentStreams(limit.StreamsPerSession), // newer callers put many dials on one connection
		grpc.ConnectionTimeout(limit.Handshake),
	)
	srv.RegisterService(&grpc.ServiceDesc{
		ServiceName: "ProxyService",
		HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{{
			StreamName: "Proxy", ServerStreams: true, ClientStreams: true,
			Handler: func(_ any, s grpc.ServerStream) error {
				c := &conn{stream: s, dial: dial, id: f.next.Add(1), log: f.log, dials: make(chan packet, 1)}
				return c.serve(g)
			},
		}},
	}, f)
	stop := run.OnDone(ctx, srv.Stop)
	err := srv.Serve(netutil.LimitListener(ln, limit.ConnectConnections))
	stop()
	if ctx.Err() != nil || errors.Is(err, grpc.ErrServerStopped) {
		err = nil
	}
	g.Stop()
	return errors.Join(err, g.Wait())
}

// conn is the life of one proxied connection, which has a gRPC stream to itself:
//
//	wait --DIAL_REQ--> dial --DIAL_RSP(id)--> open --CLOSE_REQ, or the target's end--> CLOSE_RSP, done
//	                     \--DIAL_RSP(error), or DIAL_CLS--> done
//
// receive owns what comes from the caller, serve owns everything that is sent.
type conn struct {
	stream grpc.ServerStream
	dial   func(context.Context, wire.Dial) (carrier.Stream, error)
	id     int64
	log    *slog.Logger
	dials  chan packet // the one DIAL_REQ

	target  atomic.Pointer[carrier.Stream]
	closing atomic.Bool // the caller sent CLOSE_REQ
	bad     atomic.Pointer[fault.Fault]
}

func (c *conn) serve(g *run.Group) error {
	ctx, cancel := context.WithCancel(c.stream.Context())
	defer cancel()
	received := make(chan struct{})
	// The receiver ends when this handler has returned and gRPC ends the stream.
	g.Do(func(context.Context) {
		defer close(received)
		defer cancel()
		c.receive(ctx, cancel)
	})
	var req packet
	select {
	case req = <-c.dials:
	case <-received:
		return c.protocolError()
	case <-ctx.Done():
		return c.protocolError()
	}
	target, err := c.dial(ctx, wire.Dial{Network: req.protocol, Address: req.address})
	if err != nil {
		if bad := c.bad.Load(); bad != nil || ctx.Err() != nil {
			return c.protocolError()
		}
		return c.send(&packet{kind: dialResponse, random: req.random, errText: fault.From(err).Explain()})
	}
	c.target.Store(&target)
	abort := run.OnDone(ctx, func() {
		if !c.closing.Load() {
			target.Reset(splice.ResetCode(fault.CodeDialCanceled))
		}
	})
	defer abort()
	if err := c.send(&packet{kind: dialResponse, random: req.random, connectID: c.id}); err != nil {
		target.Reset(splice.ResetCode(fault.CodeDialCanceled))
		return err
	}
	return c.pump(target)
}

// pump carries the target's bytes to the caller until one side ends.
func (c *conn) pump(target carrier.Stream) error {
	buf := make([]byte, limit.KonnectivityData)
	for {
		n, err := target.Read(buf)
		if n > 0 && !c.closing.Load() {
			if err := c.send(&packet{kind: data, connectID: c.id, payload: buf[:n]}); err != nil {
				target.Reset(splice.ResetCode(fault.CodeStreamReset))
				return err
			}
		}
		switch {
		case c.closing.Load(): // CLOSE_REQ cut the read short
			sent := c.send(&packet{kind: closeResponse, connectID: c.id})
			linger(target)
			return sent
		case err == nil:
			continue
		case errors.Is(err, io.EOF):
			// The protocol has no half-close: the target's end is the end.
			sent := c.send(&packet{kind: closeResponse, connectID: c.id})
			target.CloseWrite()
			target.Close()
			return errors.Join(c.protocolError(), sent)
		default:
			target.Reset(splice.ResetCode(fault.CodeStreamReset))
			if bad := c.protocolError(); bad != nil {
				return bad
			}
			return c.send(&packet{kind: closeResponse, connectID: c.id, errText: err.Error()})
		}
	}
}

// linger lets the target see an orderly end after the caller has closed, and
// gives up on one that goes on sending.
func linger(target carrier.Stream) {
	target.SetReadDeadline(time.Now().Add(limit.Shutdown))
	if _, err := io.Copy(io.Discard, target); err == nil {
		target.Close()
		return
	}
	target.Reset(splice.ResetCode(fault.CodeStreamReset))
}

func (c *conn) send(p *packet) error { return c.stream.SendMsg(p) }

func (c *conn) protocolError() error {
	if bad := c.bad.Load(); bad != nil {
		return status.Error(codes.InvalidArgument, bad.Explain())
	}
	return nil
}

// receive handles what the caller sends. Writing to the target blocks it, and
// with it the flow-control window of this gRPC stream alone.
func (c *conn) receive(ctx context.Context, cancel func()) {
	asked := false
	for {
		var p packet
		if err := c.stream.RecvMsg(&p); err != nil {
			var f *fault.Fault
			if errors.As(err, &f) {
				c.fail(f)
			} else if status.Code(err) == codes.Internal || status.Code(err) == codes.ResourceExhausted {
				c.fail(fault.New(fault.CodeFrameInvalid, "a konnectivity packet cannot be received").Because(err))
			}
			return
		}
		switch p.kind {
		case dialRequest:
			if asked {
				c.fail(fault.New(fault.CodeFrameInvalid, "a second DIAL_REQ on one stream").Hint("open one stream for each dial"))
				return
			}
			asked = true
			c.dials <- p
		case data:
			if !c.write(ctx, &p) {
				return
			}
		case closeRequest, closeDial:
			p.free()
			target := c.target.Load()
			if target == nil {
				cancel() // gives the dial up
				return
			}
			c.closing.Store(true)
			(*target).CloseWrite()
			(*target).SetReadDeadline(time.Unix(1, 0))
			return
		}
		p.free() // unknown types are ignored, as the reference does
	}
}

// write passes data on; it reports false when the connection has to end.
func (c *conn) write(ctx context.Context, p *packet) bool {
	defer p.free()
	target := c.target.Load()
	if target == nil || p.connectID != c.id {
		c.fail(fault.Newf(fault.CodeFrameInvalid, "DATA for connection %d on the stream of %d", p.connectID, c.id))
		return false
	}
	if _, err := (*target).Write(p.payload); err != nil {
		if ctx.Err() == nil {
			c.log.Debug("write to target failed", tell.AttrReason, err)
			(*target).Reset(splice.ResetCode(fault.CodeStreamReset))
		}
		return false
	}
	return true
}

// fail remembers the caller's mistake and ends the connection.
func (c *conn) fail(f *fault.Fault) {
	c.bad.CompareAndSwap(nil, f)
	if target := c.target.Load(); target != nil {
		(*target).Reset(splice.ResetCode(fault.CodeStreamReset))
	}
}
