// SPDX-License-Identifier: Apache-2.0

// Package konnectivity serves kube-apiserver's GRPC egress protocol (KEP-1281
// as shipped by kubernetes-sigs/apiserver-network-proxy) on a unix socket, and
// both ends of the tunnels of that project's agents. It owns the packet codec
// and the life of a proxied connection. It does not know flags and ports.
package konnectivity

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// Frontend serves the protocol; one value serves many listeners.
type Frontend struct {
	Observe   Observer      // nil: nobody
	Keepalive time.Duration // between pings of silent callers; 0: as gRPC has it

	log  *slog.Logger
	pool mem.BufferPool
	most int          // streams of a listener
	next atomic.Int64 // the newest connectID; 0 means none on the wire
}

// New makes a frontend.
func New(log *slog.Logger) *Frontend {
	return &Frontend{log: log, pool: newPool(), most: limit.ConnectConnections}
}

// Serve serves callers on ln until ctx ends; it owns ln. When it returns, every
// connection that it served has ended.
func (f *Frontend) Serve(ctx context.Context, ln net.Listener,
	dial func(context.Context, wire.Dial) (carrier.Stream, error)) error {
	g := run.NewGroup(ctx)
	streams, waiting := run.NewLimiter(f.most), run.NewLimiter(limit.PendingDials)
	var held budget
	refuse := f.refuser(ln)
	observe := f.Observe
	if observe == nil {
		observe = unobserved{}
	}
	srv := grpc.NewServer(
		grpc.ForceServerCodecV2(newCodec(f.pool)),
		experimental.BufferPool(f.pool),
		grpc.WriteBufferSize(frontWrite),
		grpc.Creds(socketCredentials{}),
		grpc.MaxConcurrentStreams(limit.StreamsPerSession), // newer callers put many dials on one connection
		grpc.ConnectionTimeout(limit.Handshake),
		grpc.MaxHeaderListSize(limit.RequestHeader), // instead of 16 MiB for each stream
		grpc.MaxRecvMsgSize(limit.KonnectivityPacket),
		grpc.StaticStreamWindowSize(limit.KonnectivityWindow),
		grpc.StaticConnWindowSize(4*limit.KonnectivityWindow), // given back as it is read: it bounds a burst, not the memory
		grpc.WaitForHandlers(true),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: f.Keepalive}), // 0 is gRPC's own: 2 hours
	)
	srv.RegisterService(&grpc.ServiceDesc{
		ServiceName: "ProxyService",
		HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{{
			StreamName: "Proxy", ServerStreams: true, ClientStreams: true,
			Handler: func(_ any, s grpc.ServerStream) error {
				// Each connection may have many: these are all of the socket's.
				if !streams.TryAcquire() {
					return tooMany(s.Context(), refuse, "%d streams are open on this socket", f.most)
				}
				defer streams.Release()
				if !waiting.TryAcquire() {
					return tooMany(s.Context(), refuse, "%d streams of this socket have sent no DIAL_REQ yet", limit.PendingDials)
				}
				r, err := newReceiver(s.Context(), f.pool, &held)
				if err != nil {
					waiting.Release()
					return err
				}
				observe.Stream(MethodProxy, +1)
				defer observe.Stream(MethodProxy, -1)
				if len(namedTargets(s.Context())) > 0 {
					waiting.Release()
					c := newKEPConn(s, r, f.log)
					c.observe = observe
					return c.serve(g, dial)
				}
				c := newConn(s, r, g, f.next.Add(1), f.log)
				c.observe = observe
				return c.serve(dial, waiting.Release)
			},
		}},
	}, f)
	stop := run.OnDone(ctx, srv.Stop)
	err := srv.Serve(&boundedListener{Listener: ln, ctx: ctx, places: run.NewLimiter(limit.ConnectConnections)})
	stop()
	if ctx.Err() != nil || errors.Is(err, grpc.ErrServerStopped) {
		err = nil
	}
	g.Stop()
	srv.Stop() // where the listener failed; it waits for the handlers, which use g
	return errors.Join(err, g.Wait())
}

// refuser reports streams that are refused: to the listener, if it counts and
// records what its callers are refused, else to the log.
func (f *Frontend) refuser(ln net.Listener) func(wire.Peer, error) {
	if to, ok := ln.(interface{ Refused(wire.Peer, error) }); ok {
		return to.Refused
	}
	return func(peer wire.Peer, err error) {
		f.log.Info("refused", telemetry.AttrPeer, fmt.Sprintf("%+v", peer), telemetry.AttrCode, fault.From(err).Code,
			telemetry.AttrReason, err)
	}
}

// tooMany refuses a stream; who opened it is in ctx.
func tooMany(ctx context.Context, refuse func(wire.Peer, error), why string, most int) error {
	full := fault.New(fault.CodeLimit, "the socket takes no more streams").Whyf(why, most).
		Hint("find what opens so many")
	who, _ := callerOf(ctx)
	refuse(who.peer, full)
	return explain(codes.ResourceExhausted, full)
}
