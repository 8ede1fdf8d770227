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

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/konnectivity/grpcwire"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// Frontend serves the protocol; one value serves many listeners.
type Frontend struct {
	Observe   Observer        // nil: nobody
	Keepalive time.Duration   // between pings of silent callers; 0: as gRPC has it
	Drains    <-chan struct{} // when it is closed, callers are told to dial elsewhere; nil: never

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
	on := &socket{Frontend: f, streams: run.NewLimiter(f.most), waiting: run.NewLimiter(limit.PendingDials),
		refuse: f.refuser(ln), observe: f.Observe, group: g, dial: dial}
	if on.observe == nil {
		on.observe = unobserved{}
	}
	on.left = func() {
		on.observe.Stream(MethodProxy, -1)
		on.streams.Release()
	}
	srv := &grpcwire.Server{
		Service: "ProxyService", Method: MethodProxy,
		Handle: on.serve, Conn: withCaller, Metadata: append(saidNames(), headTarget),
		Streams:   limit.StreamsPerSession, // newer callers put many dials on one connection
		Window:    limit.KonnectivityWindow,
		Burst:     4 * limit.KonnectivityWindow,
		Header:    limit.RequestHeader,
		Handshake: limit.Handshake,
		Keepalive: f.Keepalive,
		Drains:    f.Drains,
		Pool:      f.pool,
		Log:       f.log,
	}
	err := srv.Serve(ctx, &boundedListener{Listener: ln, ctx: ctx, places: run.NewLimiter(limit.ConnectConnections)})
	g.Stop()
	return errors.Join(err, g.Wait())
}

// socket is what all streams of a listener share: each connection may have many.
type socket struct {
	*Frontend
	streams, waiting *run.Limiter
	held             budget
	refuse           func(wire.Peer, error)
	observe          Observer
	left             func() // for each stream that is over
	group            *run.Group
	dial             func(context.Context, wire.Dial) (carrier.Stream, error)
}

// serve is on the stack of an idle connection, and has nothing large there.
func (on *socket) serve(s *grpcwire.Stream) error {
	carry, err := on.admit(s)
	if err != nil {
		return err
	}
	on.observe.Stream(MethodProxy, +1)
	s.Finally(on.left) // it costs memory until its status is written
	return carry()
}

// admit has a stream take its places, and tells what carries it.
func (on *socket) admit(s *grpcwire.Stream) (carry func() error, err error) {
	if !on.streams.TryAcquire() {
		return nil, tooMany(s.Context(), on.refuse, "%d streams are open on this socket", on.most)
	}
	if !on.waiting.TryAcquire() {
		on.streams.Release()
		return nil, tooMany(s.Context(), on.refuse, "%d streams of this socket have sent no DIAL_REQ yet",
			limit.PendingDials)
	}
	r := &receiver{from: s, pool: on.pool, held: &on.held}
	if len(namedTargets(s.Context())) > 0 {
		on.waiting.Release()
		c := newKEPConn(s, r, on.log)
		c.observe = on.observe
		return func() error { return c.serve(on.group, on.dial) }, nil
	}
	c := newConn(s, r, on.group, on.next.Add(1), on.log)
	c.observe = on.observe
	return func() error { return c.serve(on.dial, on.waiting.Release) }, nil
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
