// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"context"
	"crypto/tls"
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/untrusted"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/splice"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
	pb "github.com/tombolo-io/tombolo/proto"
)

// ConnectNative begins a session with a server on a connection on which ALPN was agreed. The connection is the caller's
// until it has no error; then Serve closes it, or Close without Serve.
func ConnectNative(ctx context.Context, conn *tls.Conn, o UpstreamOptions) (*Upstream, error) {
	return begin(ctx, func(ctx context.Context) (*Upstream, error) {
		defer run.OnDone(ctx, func() { conn.NetConn().Close() })()
		if err := wire.Write(conn, greeting(metadata.Pairs(o.head()...))); err != nil {
			return nil, err
		}
		head, err := readGreeting(conn)
		if err != nil {
			return nil, err
		}
		u, err := newUpstream(ctx, nil, head, o)
		if err == nil {
			u.native = conn
		}
		return u, err
	})
}

// serveNative is Serve of a session.
func (u *Upstream) serveNative() error {
	defer u.stop()
	ctx := u.group.Context()
	defer run.OnDone(ctx, func() { u.native.NetConn().Close() })()
	session, err := carrier.Client(u.native, carrier.Options{Incoming: limit.StreamsPerSession, Budget: u.Budget})
	if err != nil {
		u.native.NetConn().Close()
		return err
	}
	defer session.Close()
	var told atomic.Pointer[fault.Fault] // why the server ends it
	control, err := session.OpenStream(ctx, nil)
	if err == nil {
		beat := newBeat(session, control, func(f *pb.Control) {
			if f.GetGoodbye() != nil {
				told.Store(wire.FromFault(f.GetGoodbye().GetReason()))
				session.Close()
			}
		})
		u.group.Do(func(ctx context.Context) { u.sayDrain(ctx, beat.Send) })
		u.group.Go("streams", func(ctx context.Context) error { return u.accept(ctx, session) })
		err = beat.Run(ctx)
	}
	u.observe.Failed(u.inbound(), -1, err)
	if why := told.Load(); why != nil {
		u.end(why)
	}
	u.end(ended("the konnectivity session was lost", err))
	u.group.Stop()
	u.group.Wait() // what its functions end with is known
	return u.why()
}

// sayDrain waits for Drain.
func (u *Upstream) sayDrain(ctx context.Context, send func(*pb.Control) bool) {
	select {
	case <-u.drains:
		u.observe.Packet(u.outbound(), drain)
		send(&pb.Control{Frame: &pb.Control_Drain{Drain: &pb.Drain{}}})
	case <-ctx.Done():
	}
}

// accept serves each stream of the server.
func (u *Upstream) accept(ctx context.Context, session carrier.Session) error {
	for {
		stream, err := session.AcceptStream(ctx)
		if err != nil {
			return err
		}
		u.group.Do(func(ctx context.Context) { u.serveStream(ctx, stream) })
	}
}

// serveStream reads a dial and answers it.
func (u *Upstream) serveStream(ctx context.Context, stream carrier.Stream) {
	stream.SetReadDeadline(time.Now().Add(limit.Hello))
	d, err := wire.ReadDial(stream)
	stream.SetReadDeadline(time.Time{})
	if err != nil {
		stream.Reset(splice.ResetCode(fault.CodeFrameInvalid))
		return
	}
	u.observe.Packet(u.inbound(), dialRequest)
	if !u.waiting.TryAcquire() {
		u.refuse(stream, fault.New(fault.CodeLimit, "too many dials are under way at this agent"))
		return
	}
	u.answer(ctx, stream, d)
}

// answer dials, within the time for that, and has the bytes carried.
func (u *Upstream) answer(ctx context.Context, stream carrier.Stream, d wire.Dial) {
	if d.Network != wire.NetworkTCP {
		u.waiting.Release()
		u.refuse(stream, fault.Newf(fault.CodeRequest, "this agent dials tcp, and not %s",
			strconv.Quote(untrusted.Text(d.Network, 32))))
		return
	}
	start := time.Now()
	id := u.next.Add(1)
	dctx, cancel := context.WithTimeout(ctx, min(targetDial, d.Timeout))
	u.asking.Lock()
	u.dialing[id] = cancel
	u.asking.Unlock()
	conn, err := u.reach(dctx, d.Address)
	var ended func()
	if err == nil {
		ended = u.opened() // before it is no dial any more: a drain sees it all the time
	}
	cancel()
	u.asking.Lock()
	delete(u.dialing, id)
	u.asking.Unlock()
	u.waiting.Release()
	if err != nil {
		u.tell(stream, fault.New(fault.CodeDialUnreachable, "the agent could not reach the target").Because(err))
		return
	}
	both := newNative(stream, u.link, ended)
	u.observe.Dialled(time.Since(start))
	if !u.tell(stream, nil) {
		conn.Close()
		both.Reset(splice.ResetCode(fault.CodeDialCanceled))
		return
	}
	u.carry(conn, both)
}

// refuse answers a dial that is not tried.
func (u *Upstream) refuse(stream carrier.Stream, f *fault.Fault) {
	u.observe.DialFailed(TargetUnknown)
	u.tell(stream, f)
}

// tell answers a dial; a stream with a fault is closed. false: the caller is gone.
func (u *Upstream) tell(stream carrier.Stream, f *fault.Fault) bool {
	u.observe.Packet(u.outbound(), dialResponse)
	stream.SetWriteDeadline(time.Now().Add(limit.ReplyWrite))
	err := wire.Write(stream, wire.Reply("", f))
	stream.SetWriteDeadline(time.Time{})
	switch {
	case f == nil:
	case err != nil:
		stream.Reset(splice.ResetCode(fault.CodeDialCanceled))
	default:
		err = errors.Join(f, stream.Close())
	}
	return err == nil
}
