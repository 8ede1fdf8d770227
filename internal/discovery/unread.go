// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/stats"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
)

// answers owns what callers have not read yet. gRPC keeps a message to a caller that does not
// read until the stream or the connection ends, long after the handler has returned. So an
// answer counts, and a watch holds its place, until gRPC has let go of the message; and a
// caller that takes nothing of a message for as long as patience loses its connection.
type answers struct {
	codec    codec
	mark     []byte // empty, and large enough for gRPC to count its references
	patience time.Duration
	settings *atomic.Pointer[Reloadable]
	callers  *callers
	metrics  *telemetry.Discovery
	log      *slog.Logger
	unread   atomic.Int64 // bytes
}

func newAnswers(patience time.Duration, settings *atomic.Pointer[Reloadable], c *callers, m *telemetry.Discovery,
	log *slog.Logger) *answers {
	return &answers{
		codec: newCodec(), mark: make([]byte, 0, 2<<10), patience: patience,
		settings: settings, callers: c, metrics: m, log: log,
	}
}

// sending is a message that gRPC has not let go of yet. Behind each part of it stands a
// mark, a buffer without bytes. gRPC frees the mark (see Put) once the part is written,
// or given up together with the stream.
type sending struct {
	of    *answers
	to    *greeted
	data  mem.BufferSlice
	end   func() // called once, when gRPC has let go of everything, or the connection is gone
	marks atomic.Int32
	moved atomic.Bool // since look was called last
	ended atomic.Bool
	timer *time.Timer
}

// packed are the parts of a message that is bytes already, and that many callers share.
type packed [][]byte

// newSending makes a message ready to be sent.
func (a *answers) newSending(v any, to *greeted, end func()) (*sending, error) {
	m := &sending{of: a, to: to, end: end}
	switch v := v.(type) {
	case raw:
		m.split(v)
	case packed:
		for _, part := range v {
			m.split(part)
		}
	default:
		data, err := a.codec.Marshal(v)
		if err != nil {
			return nil, err
		}
		for _, part := range data {
			m.add(part)
		}
	}
	if len(m.data) == 0 {
		m.add(mem.SliceBuffer(nil)) // an empty message is sent, too
	}
	m.timer = time.AfterFunc(time.Hour, m.look)
	m.timer.Reset(a.patience) // not before m.timer is set: look reads it
	return m, nil
}

// split adds parts that are small enough to tell a slow caller from one that does not read.
func (m *sending) split(b []byte) {
	for len(b) > discoveryPart {
		m.add(mem.SliceBuffer(b[:discoveryPart]))
		b = b[discoveryPart:]
	}
	m.add(mem.SliceBuffer(b))
}

func (m *sending) add(part mem.Buffer) {
	m.marks.Add(1)
	m.data = append(m.data, part, mem.NewBuffer(&m.of.mark, m))
}

// Get implements mem.BufferPool. Nobody calls it.
func (m *sending) Get(n int) *[]byte {
	b := make([]byte, n)
	return &b
}

// Put implements mem.BufferPool: gRPC has let go of a part.
func (m *sending) Put(*[]byte) {
	m.moved.Store(true)
	if m.marks.Add(-1) == 0 {
		m.over()
	}
}

// over ends the wait for gRPC to let go.
func (m *sending) over() {
	if !m.ended.Swap(true) {
		m.timer.Stop()
		m.end()
	}
}

// look ends the connection if nothing of the message was taken since the last look. The
// connection of a trusted proxy carries the calls of others and stays: what its caller
// does not read keeps counting.
func (m *sending) look() {
	switch {
	case m.ended.Load():
	case m.to.closed.Load():
		m.over() // gRPC frees nothing of a connection that is gone
	case m.moved.Swap(false), within(m.of.settings.Load().proxies, addrOf(m.to.RemoteAddr()).Addr()):
		m.timer.Reset(m.of.patience)
	default:
		m.of.deaf(m.to)
		m.over()
	}
}

// gone is called for each message that gRPC has taken. gRPC drops messages after the end of their
// stream and never frees them: by then the end is known here. (When a unary
// call ends in order, its message was taken before.)
type gone struct{}

// TagRPC implements stats.Handler.
func (gone) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// TagConn implements stats.Handler.
func (gone) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn implements stats.Handler.
func (gone) HandleConn(context.Context, stats.ConnStats) {}

// HandleRPC implements stats.Handler.
func (gone) HandleRPC(ctx context.Context, what stats.RPCStats) {
	if out, is := what.(*stats.OutPayload); is && ctx.Err() != nil {
		if m, is := out.Payload.(*sending); is {
			m.over()
		}
	}
}

// deaf ends the connection of a caller that does not read.
func (a *answers) deaf(to *greeted) {
	if to.deaf.Swap(true) {
		return // because of another answer
	}
	a.metrics.Unread.Inc()
	a.log.Debug("connection ended: its answers are not read", "peer", to.RemoteAddr(), "for", a.patience)
	to.cut()
}

// claim counts bytes that wait to be read with the address that asked for them.
func (a *answers) claim(from netip.Addr, n int) (release func(), err error) {
	if all := a.unread.Add(int64(n)); all > discoveryUnread && all > int64(n) {
		a.unread.Add(int64(-n))
		return nil, fault.New(fault.CodeLimit, "the answer is not given").
			Whyf("callers have not read %d bytes of earlier answers, and %d is the bound", all-int64(n), discoveryUnread).
			Hint("try again in a minute").After(time.Minute)
	}
	leave, err := a.callers.hold(from, holdUnread, n, discoveryUnread/discoveryShare, discoveryUnread)
	if err != nil {
		a.unread.Add(int64(-n))
		return nil, err
	}
	return func() {
		leave()
		a.unread.Add(int64(-n))
	}, nil
}

// claims claims for the caller of a call.
func (a *answers) claims(ctx context.Context) Claim {
	return func(n int) (func(), error) { return a.claim(callerOf(ctx).Addr(), n) }
}

// called is one call: its caller, connection and answer.
type called struct {
	from netip.AddrPort
	over *greeted
	list *Rendered // in place of the message, where the answer is packed already
}

type calledKey struct{}

func callOf(ctx context.Context) *called {
	if c, ok := ctx.Value(calledKey{}).(*called); ok {
		return c
	}
	return &called{}
}

// callerOf is the address of the caller.
func callerOf(ctx context.Context) netip.AddrPort { return callOf(ctx).from }

// reply makes the answer of a unary call ready to be sent.
func (a *answers) reply(c *called, v any, end func()) (*sending, error) {
	if c.list == nil {
		return a.newSending(v, c.over, end)
	}
	return a.newSending(packed(c.list.Pieces), c.over, func() {
		c.list.Done()
		end()
	})
}

// calledStream is a stream that knows the call.
type calledStream struct {
	grpc.ServerStream
	of  *answers
	ctx context.Context
}

func (c calledStream) Context() context.Context { return c.ctx }

// RecvMsg implements grpc.ServerStream.
func (c calledStream) RecvMsg(m any) error {
	err := c.ServerStream.RecvMsg(m)
	came(c.ctx)
	if err != nil {
		return err
	}
	return readable(m)
}

// SendMsg implements grpc.ServerStream. It returns when gRPC has let go of the message:
// so of each stream one message is in memory, and the call lasts until it was read.
func (c calledStream) SendMsg(v any) error {
	gone := make(chan struct{})
	m, err := c.of.newSending(v, callOf(c.ctx).over, func() { close(gone) })
	if err != nil {
		return err
	}
	if err := c.ServerStream.SendMsg(m); err != nil {
		m.over()
		return err
	}
	select {
	case <-gone:
		if callOf(c.ctx).over.deaf.Load() {
			return context.Canceled
		}
		return nil
	case <-c.ctx.Done():
		m.over()
		return context.Cause(c.ctx)
	}
}

// sendSnapshot sends a whole cluster as bytes.
func (a *answers) sendSnapshot(stream grpc.ServerStream, w *Watcher, render func([]Listing) [][]byte) error {
	all, err := w.Snapshot(render, a.claims(stream.Context()))
	if err != nil {
		return err
	}
	defer all.Done()
	for _, piece := range all.Pieces {
		if err := stream.SendMsg(raw(piece)); err != nil {
			return err
		}
	}
	return nil
}

// sendDelta sends what changed.
func sendDelta(stream grpc.ServerStream, d *delta) error {
	for _, m := range d.messages {
		if err := stream.SendMsg(raw(m)); err != nil {
			return err
		}
	}
	runtime.KeepAlive(d) // others share it for as long as one still sends it
	return nil
}

// lines are gRPC's credentials of a connection, by which a call finds the connection. The
// handshake itself was done when it was greeted.
type lines struct {
	credentials.TransportCredentials
}

func newLines() lines { return lines{insecure.NewCredentials()} }

// ServerHandshake implements credentials.TransportCredentials.
func (lines) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	to, ok := conn.(*greeted)
	if !ok {
		to = &greeted{Conn: conn} // of a test, without a greeting
	}
	return to, known{to}, nil
}

type known struct{ *greeted }

// AuthType implements credentials.AuthInfo.
func (known) AuthType() string { return "known" }
