// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/audit"
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

// session is one live link to a hub.
type session struct {
	hub      string // its address, as it was dialled
	link     carrier.Session
	beat     *heartbeat.Beat
	streams  atomic.Int64
	accepted atomic.Bool // the hub has answered a ping, so it gives us streams
	draining atomic.Bool
	farewell atomic.Pointer[fault.Fault] // the hub's reason to end the session, or ours
	missing  atomic.Int64                // connections that were lost and not replaced
	load     load
	emptied  chan struct{} // signalled when the last stream ends
}

func (a *Agent) onFrame(s *session, f *pb.Control) {
	switch x := f.GetFrame().(type) {
	case *pb.Control_Drain:
		if !s.draining.Swap(true) {
			a.log.Info("the hub drains", telemetry.AttrReason, wire.Clean(x.Drain.GetReason()))
		}
	case *pb.Control_Goodbye:
		s.farewell.Store(wire.FromFault(x.Goodbye.GetReason()))
		s.link.Close()
	}
}

// serve runs a session until it ends and returns why, never nil.
func (a *Agent) serve(ctx context.Context, s *session) error {
	g := run.NewGroup(ctx)
	stop := run.OnDone(g.Context(), func() { s.link.Close() })
	g.Go("control", s.beat.Run)
	g.Go("streams", func(ctx context.Context) error { return a.acceptStreams(ctx, s) })
	err := g.Wait()
	stop()
	s.load.end()
	why := s.ended(ctx, err)
	a.metrics.SessionEnds.WithLabelValues(telemetry.Outcome(why.Code)).Inc()
	if ctx.Err() != nil && s.farewell.Load() == nil {
		return ctx.Err()
	}
	return why
}

// ended says why a session ended whose parts gave err: what one side said to the
// other comes first.
func (s *session) ended(ctx context.Context, err error) *fault.Fault {
	if f := s.farewell.Load(); f != nil {
		return f
	}
	if ctx.Err() != nil {
		return fault.New(fault.CodeDraining, "the agent was stopped")
	}
	return fault.From(firstFault(err))
}

// firstFault prefers the coded reason among the joined ends of a session's parts.
func firstFault(err error) error {
	var f *fault.Fault
	if errors.As(err, &f) {
		return f
	}
	return fault.New(fault.CodeSessionLost, "the session ended").Because(err)
}

// acceptStreams serves each stream of the hub in its own goroutine; the number
// is bounded by the carrier (limit.StreamsPerSession).
func (a *Agent) acceptStreams(ctx context.Context, s *session) error {
	g := run.NewGroup(ctx)
	for {
		stream, err := s.link.AcceptStream(ctx)
		if err != nil {
			g.Stop()
			return errors.Join(fault.New(fault.CodeSessionLost, "the session broke").Because(err), g.Wait())
		}
		a.enter(s, +1)
		g.Do(func(ctx context.Context) {
			defer a.enter(s, -1)
			a.serveStream(ctx, stream)
		})
	}
}

// enter counts a stream in or out.
func (a *Agent) enter(s *session, delta int64) {
	n := s.streams.Add(delta)
	s.beat.Busy(int(delta))
	total := a.streams.Add(delta)
	a.metrics.Streams.Set(float64(total))
	s.load.changed(a.streams.Load)
	if n == 0 {
		select {
		case s.emptied <- struct{}{}:
		default:
		}
	}
}

// serveStream reads the dial request, dials, answers and copies.
func (a *Agent) serveStream(ctx context.Context, stream carrier.Stream) {
	stream.SetReadDeadline(time.Now().Add(limit.Hello))
	d, err := wire.ReadDial(stream)
	stream.SetReadDeadline(time.Time{})
	if err != nil {
		stream.Reset(splice.ResetCode(fault.CodeFrameInvalid))
		return
	}
	start := time.Now()
	set := a.settings.Load()
	dctx := context.Context(within{ctx, start.Add(min(d.Timeout, set.DialTimeout))})
	var choose choice
	if d.Ask {
		choose = func(ctx context.Context, allowed []netip.AddrPort) ([]netip.AddrPort, error) {
			return askHub(ctx, stream, allowed)
		}
	}
	account := a.account(d)
	span := a.trace.Begin(ctx, "dial", d.Trace, d.TraceState)
	dctx = a.traced(dctx, span, d)
	conn, resolved, err := net.Conn(nil), "", a.audit.Admit()
	if err == nil {
		conn, resolved, err = a.dialer.Dial(dctx, set.Policy, d, choose)
	}
	if ctx.Err() != nil { // we stop, the caller did not: another agent may serve it
		if conn != nil {
			conn.Close()
		}
		stream.Reset(splice.ResetCode(fault.CodeSessionLost))
		span.End(string(fault.CodeSessionLost))
		account.fail(fault.New(fault.CodeSessionLost, "the agent was stopped during the dial"))
		return
	}
	s := &liveStream{Stream: stream}
	if err == nil {
		s.request = a.question(d, resolved)
		v := a.enterLive(s)
		account.judged(v, resolved, a.settings.Load().Policy)
		if !v.Allow { // the rules have changed since they were asked
			err = refusedBy(v)
		}
		defer a.leaveLive(s)
	}
	f := fault.From(err)
	if f != nil && account != nil {
		account.tried(a.question(d, resolved), set.Policy)
	}
	span.Set("tombolo.resolved", resolved)
	endSpan(span, f)
	a.metrics.DialDuration.Observe(time.Since(start).Seconds())
	a.metrics.Dials.WithLabelValues(outcome(f)).Inc()
	stream.SetWriteDeadline(time.Now().Add(limit.ReplyWrite))
	if err := wire.Write(stream, wire.Reply(resolved, f)); err != nil || f != nil {
		if conn != nil {
			conn.Close()
		}
		if err != nil {
			stream.Reset(splice.ResetCode(fault.CodeDialCanceled))
			account.fail(cmp.Or(f, fault.New(fault.CodeDialCanceled, "the hub did not take the answer")))
			return
		}
		stream.Close()
		if account.fail(f) {
			a.log.Info("dial failed", telemetry.AttrTarget, wire.Clean(audit.Destination(d.Address)),
				telemetry.AttrCaller, wire.Clean(d.Caller), telemetry.AttrCode, f.Code, telemetry.AttrReason, f.Error())
		}
		return
	}
	stream.SetWriteDeadline(time.Time{})
	a.log.Debug("dialled", telemetry.AttrTarget, d.Address, "resolved", resolved, telemetry.AttrCaller, d.Caller)
	r := a.carry(ctx, d, stream, conn, set.IdleTimeout)
	if v := s.against.Load(); v != nil {
		r.Code = fault.CodePolicyDenied
		account.overruled(*v, a.settings.Load().Policy)
	}
	a.metrics.StreamEnds.WithLabelValues(telemetry.Outcome(r.Code)).Inc()
	account.ended(r)
}

// carry copies bytes or datagrams until both sides have ended.
func (a *Agent) carry(ctx context.Context, d wire.Dial, stream carrier.Stream, conn net.Conn,
	idle time.Duration) splice.Result {
	target := splice.Net(conn)
	if d.Datagrams() {
		target, idle = a.splicer.Datagrams(conn), min(idle, limit.DatagramIdle)
	}
	return a.splicer.Both(ctx, stream, target, splice.Options{Idle: idle, Up: &a.up, Down: &a.down})
}

// askHub lets the hub choose among the addresses that we allow. Nothing but these
// comes back, whatever the hub says.
func askHub(ctx context.Context, stream carrier.Stream, allowed []netip.AddrPort) ([]netip.AddrPort, error) {
	if deadline, ok := ctx.Deadline(); ok {
		stream.SetDeadline(deadline)
		defer stream.SetDeadline(time.Time{})
	}
	if err := wire.Write(stream, wire.Addresses(allowed)); err != nil {
		return nil, fault.New(fault.CodeDialCanceled, "the hub did not choose an address").Because(err)
	}
	chosen, err := wire.ReadChoice(stream)
	var reset *carrier.ResetError
	if errors.As(err, &reset) && splice.ResetReason(reset.Code) == fault.CodePolicyDenied {
		return nil, fault.New(fault.CodePolicyDenied, "the hub's policy refuses the addresses of the name")
	}
	if err != nil {
		return nil, fault.New(fault.CodeDialCanceled, "the hub did not choose an address").Because(err)
	}
	both := slices.DeleteFunc(slices.Clone(allowed), func(a netip.AddrPort) bool { return !slices.Contains(chosen, a) })
	if len(both) == 0 {
		return nil, fault.New(fault.CodePolicyDenied, "the hub chose an address that this agent does not allow")
	}
	return both, nil
}

func outcome(f *fault.Fault) string {
	if f == nil {
		return telemetry.Outcome("")
	}
	return telemetry.Outcome(f.Code)
}

// sessions is the set of live sessions.
type sessions struct {
	mu  sync.Mutex
	all map[*session]struct{}
}

func (l *sessions) add(s *session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == nil {
		l.all = map[*session]struct{}{}
	}
	l.all[s] = struct{}{}
}

func (l *sessions) remove(s *session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.all, s)
}

func (l *sessions) list() []*session {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]*session, 0, len(l.all))
	for s := range l.all {
		out = append(out, s)
	}
	return out
}

// sum adds up a figure of the sessions.
func (l *sessions) sum(figure func(carrier.Info) int) (n float64) {
	for _, s := range l.list() {
		n += float64(figure(s.link.Info()))
	}
	return n
}

// hub is the address of the one whose session takes new streams; empty if there is none.
func (l *sessions) hub() (hub string) {
	for _, s := range l.list() {
		if s.accepted.Load() && !s.draining.Load() {
			return s.hub
		}
	}
	return ""
}

// usable counts the sessions that take new streams.
func (l *sessions) usable() (n int) {
	for _, s := range l.list() {
		if s.accepted.Load() && !s.draining.Load() {
			n++
		}
	}
	return n
}
