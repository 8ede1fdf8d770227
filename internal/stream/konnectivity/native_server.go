// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"context"
	"crypto/tls"
	"errors"
	"strings"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/heartbeat"
	"github.com/tombolo-io/tombolo/internal/stream/splice"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
	pb "github.com/tombolo-io/tombolo/proto"
)

// serveNative serves a session of an agent; it owns the connection.
func (a *Agents) serveNative(ctx context.Context, conn *tls.Conn) {
	stop := run.OnDone(ctx, func() { conn.NetConn().Close() })
	t, err := a.greet(ctx, conn)
	stop()
	if err != nil {
		conn.NetConn().Close()
		return
	}
	defer a.detach(t)
	a.Observe.Stream(MethodConnect, +1)
	defer a.Observe.Stream(MethodConnect, -1)
	a.Log.Info("agent connected", telemetry.AttrAgent, t.who.agent, "holder", t.who.holder.String(), "protocol", ALPN)
	err = a.keep(ctx, t, conn)
	if t.session != nil { // else the agent had a session with this server already
		a.Observe.Failed(t.inbound(), -1, err)
	}
	t.end(ended("the agent's session was lost", err).Hint("its agent connects again; try again"))
	a.Log.Info("agent gone", telemetry.AttrAgent, t.who.agent, telemetry.AttrReason, t.why().Error())
}

// keep has the session of an agent until it ends. It is dialled through once the agent has opened the control stream:
// one that has a session with this server already closes this one in place of that.
func (a *Agents) keep(ctx context.Context, t *tunnel, conn *tls.Conn) error {
	session, err := carrier.Server(conn, carrier.Options{Incoming: nativeControls, Budget: a.Budget})
	if err != nil {
		conn.NetConn().Close()
		return err
	}
	defer session.Close()
	waiting, cancel := context.WithTimeout(ctx, limit.Hello)
	control, err := session.AcceptStream(waiting)
	cancel()
	if err != nil {
		return err
	}
	t.session = session
	beat := newBeat(session, control, t.onFrame)
	a.arrived(t)
	watching := run.NewGroup(ctx)
	watching.Do(func(ctx context.Context) {
		a.watch(ctx, t)
		if why := t.why(); why != nil {
			farewell(session, beat, why)
		}
	})
	err = beat.Run(ctx)
	a.gone(t) // first: whoever dials again is not to choose it
	watching.Stop()
	watching.Wait()
	return err
}

// farewell tells an agent why its session ends, and ends it once the agent has read it and closed, or after a moment.
func farewell(session carrier.Session, beat *heartbeat.Beat, why *fault.Fault) {
	beat.Send(&pb.Control{Frame: &pb.Control_Goodbye{Goodbye: &pb.Goodbye{Reason: wire.ToFault(why)}}})
	timer := time.NewTimer(limit.Farewell)
	defer timer.Stop()
	select {
	case <-session.Done():
	case <-timer.C:
	}
	session.Close()
}

// greet admits the agent of a connection, or tells it why not.
func (a *Agents) greet(ctx context.Context, conn *tls.Conn) (t *tunnel, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit.Hello)
	defer cancel()
	defer run.OnDone(ctx, func() { conn.NetConn().Close() })()
	head, err := readGreeting(conn)
	if err != nil {
		return nil, err
	}
	who, err := a.admit(ctx, head, conn.ConnectionState())
	if err == nil {
		t, err = a.attach(who, nil)
	}
	if err != nil {
		wire.Write(conn, &pb.Greeting{Refusal: wire.ToFault(a.refused(who, err))}) // or the agent finds it closed
		return nil, err
	}
	if err := wire.Write(conn, greeting(a.head())); err != nil {
		a.detach(t)
		return nil, err
	}
	return t, nil
}

// onFrame takes what an agent says on the control stream.
func (t *tunnel) onFrame(f *pb.Control) {
	if f.GetDrain() != nil && !t.agents.leaves(t) {
		t.observe.Packet(t.inbound(), drain)
	}
}

// dialNative asks the agent of a session to dial, and waits for its answer.
func (t *tunnel) dialNative(ctx context.Context, d wire.Dial) (carrier.Stream, error) {
	start := time.Now()
	t.waiting.Add(1)
	defer t.waiting.Add(-1)
	stream, err := t.ask(ctx, d)
	if err != nil {
		reason, f := t.notDialled(ctx, err)
		t.observe.DialFailed(reason)
		return nil, f
	}
	t.observe.Dialled(time.Since(start))
	t.open.Add(1)
	return newNative(stream, t.link, func() { t.open.Add(-1) }), nil
}

// ask opens the stream of a dial, and reads the answer.
func (t *tunnel) ask(ctx context.Context, d wire.Dial) (carrier.Stream, error) {
	d = wire.Dial{Network: d.Network, Address: d.Address} // what the packets have
	if end, ok := ctx.Deadline(); ok {
		d.Timeout = time.Until(end)
	}
	request, err := wire.Append(nil, d.Message())
	if err != nil {
		return nil, err
	}
	t.observe.Packet(t.outbound(), dialRequest)
	stream, err := t.session.OpenStream(ctx, request)
	if err != nil {
		return nil, err
	}
	giveUp := func() { stream.Reset(splice.ResetCode(fault.CodeDialCanceled)) }
	stop := run.OnDone(ctx, giveUp)
	_, _, err = wire.ReadReply(stream, false)
	stop()
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	if err != nil {
		giveUp()
		return nil, err
	}
	t.observe.Packet(t.inbound(), dialResponse)
	return stream, nil
}

// notDialled is why a dial has failed, for the metrics and for its caller.
func (t *tunnel) notDialled(ctx context.Context, err error) (reason string, f *fault.Fault) {
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return BackendTimeout, fault.New(fault.CodeDialTimeout, "the agent has not answered the dial").
			Hint("is the target there? Look at the agent's log")
	case ctx.Err() != nil:
		return FrontendClose, fault.New(fault.CodeDialCanceled, "the dial was given up by its caller")
	case fault.Has(err, fault.CodeSessionLost):
		return BackendClose, fault.From(err)
	case isReset(err):
		return BackendClose, fault.New(fault.CodeDialCanceled, "the agent has given the dial up").Because(err)
	}
	t.observe.Packet(t.inbound(), dialResponse)
	f = fault.From(err)
	if !strings.HasPrefix(string(f.Code), "dial_") { // policies and limits are the server's own
		f = fault.New(fault.CodeDialUnreachable, "the agent could not connect").Because(err)
	}
	return ErrorResponse, f
}
