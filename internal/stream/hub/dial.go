// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/authz"
	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/otlp"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/hub/frontend"
	"github.com/tombolo-io/tombolo/internal/stream/hub/quota"
	"github.com/tombolo-io/tombolo/internal/stream/hub/record"
	"github.com/tombolo-io/tombolo/internal/stream/splice"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// dialer opens streams for callers: here a dial is refused, or gets its agent.
type dialer struct {
	*parts
	splicer *splice.Splicer   // of connections to targets of ports
	given   frontend.DialFunc // of a Gate: what opens streams in place of agents and backends
	by      string            // what given is
}

// Dial opens a stream to d.Address through an agent of the cluster. It fails
// over to another agent when one is lost or drains, never when an agent gave an
// answer about the target. It is bounded by the hub's dial timeout whatever ctx
// says. Every error is a fault.
func (dl *dialer) Dial(ctx context.Context, name id.Cluster, d wire.Dial) (carrier.Stream, error) {
	stream, err := dl.dial(ctx, name, d, nil)
	if err != nil {
		return nil, err // not a nil in an interface
	}
	return stream, nil
}

// dial is Dial, and notes its progress in at.
func (dl *dialer) dial(ctx context.Context, name id.Cluster, d wire.Dial, at *record.Progress) (*hubStream, error) {
	if dl.draining.Load() {
		return nil, shuttingDown()
	}
	c, err := dl.clusters.get(name)
	if err != nil {
		return nil, err
	}
	target, err := policy.ParseTarget(d.Address)
	if err != nil {
		return nil, fault.New(fault.CodeRequest, "the destination cannot be read").Because(err)
	}
	d.Address = target.String()
	timeout := dl.settings.Load().dialTimeout
	if d.Timeout <= 0 || d.Timeout > timeout {
		d.Timeout = timeout
	}
	if end, ok := ctx.Deadline(); !ok || time.Until(end) > d.Timeout {
		var cancel func()
		ctx, cancel = context.WithTimeout(ctx, d.Timeout)
		defer cancel()
	}
	held, err := c.accounts.Admit(ctx, d.Caller) // before the policy: refused dials cost, too
	if err != nil {
		return nil, err
	}
	if dl.draining.Load() { // while the dial waited for its turn
		held.Cancel()
		return nil, shuttingDown()
	}
	q := policy.Request{
		Cluster: name.String(), Caller: d.Caller, Local: d.Peer.Known, UID: d.Peer.UID, Egress: d.EgressType,
		Flow:   policy.FlowOf(d.Caller),
		Source: d.Source, Name: target.Name, Addr: target.Addr, Port: target.Port, Own: dl.own.FromAfar(),
	}
	if err := dl.decideFirst(ctx, q, at); err != nil {
		held.Cancel()
		return nil, err
	}
	stream, err := dl.carry(ctx, c, held, dialled{d, q, at})
	if err != nil {
		held.Cancel()
		return nil, err
	}
	stream.begun = time.Now()
	stream.hold(held)
	if r, ok := dl.access.Enter(name, stream); !ok {
		stream.Reset(splice.ResetCode(fault.CodePolicyDenied))
		return nil, authz.Denied(r, stream.request)
	}
	if _, proxied := stream.by.(*backendUse); proxied {
		if f := dl.gone(stream); f != nil { // while it was dialled; from now on a removal finds it
			stream.Cut(f)
			return nil, f
		}
	}
	return stream, nil
}

func shuttingDown() error {
	return fault.New(fault.CodeDraining, "the hub is shutting down").Hint("try again")
}

// dialled is a requested dial: as sent to the agent, as judged by the policy, and its
// progress.
type dialled struct {
	wire   wire.Dial
	policy policy.Request
	at     *record.Progress
}

// dialAny tries the cluster's sessions, the best first. It tries a session again if the
// first attempt was lost with a connection and the session continues on another one.
func (dl *dialer) dialAny(ctx context.Context, c *cluster, held *quota.Grant, d dialled) (*hubStream, error) {
	tried, again := map[*session]bool{}, map[*session]int{}
	var last error
	for {
		span := otlp.Of(ctx).Child("pick", otlp.Internal)
		sessions := c.live()
		options := make([]candidate, len(sessions))
		for i, s := range sessions {
			options[i] = s.candidate(tried[s], dl.now())
		}
		i, ok := pick(options)
		span.End("")
		if !ok {
			if last != nil && len(c.live()) > 0 {
				return nil, last
			}
			return nil, noAgent(c.name, c.agents(), dl.now())
		}
		s := sessions[i]
		if err := c.accounts.TakeAt(s.account, held); err != nil {
			tried[s], last = true, err
			continue
		}
		stream, err := dl.ask(ctx, s, d)
		if err != nil {
			held.Drop()
		}
		var old unasked
		if errors.As(err, &old) { // another agent may be newer
			tried[s], last = true, err
			continue
		}
		if err == nil || !retriable(err) {
			return stream, err
		}
		if again[s] == askedAgain || !fault.Has(err, fault.CodeSessionLost) || !s.alive() {
			tried[s] = true
		}
		again[s]++
		last = err
		dl.log.Debug("dial fails over", telemetry.AttrCluster, c.name, telemetry.AttrAgent, s.agent,
			telemetry.AttrReason, err)
	}
}

// alive reports whether the session is open and was heard from recently.
func (s *session) alive() bool {
	select {
	case <-s.link.Done():
		return false
	default:
		return time.Since(s.link.Traffic().LastReceived) < limit.Silent
	}
}

// retriable reports whether another agent may succeed where this one failed: the
// session was lost or takes no streams, and the agent gave no answer about the target.
func retriable(err error) bool {
	return fault.Has(err, fault.CodeSessionLost) || fault.Has(err, fault.CodeDraining) || refused(err)
}

// refused reports whether the agent's mux refused the stream, because there were too many
// or because it came after GOAWAY: the agent itself has not seen it.
func refused(err error) bool {
	var reset *carrier.ResetError
	return errors.As(err, &reset) && reset.Code == carrier.ResetRefused
}

// dialRequest is the initial capacity for an encoded dial request, enough for most names.
const dialRequest = 256

// dialThrough asks one agent. A session that has been silent must answer a ping first,
// so that a dial does not wait for a dead session.
func (dl *dialer) dialThrough(ctx context.Context, s *session, asked dialled) (_ *hubStream, err error) {
	d, q := asked.wire, asked.policy
	q.Own = dl.own.From(s.peer)
	if q.MeetsOwn() {
		if r := dl.access.DecideThrough(s.ranges, q); !r.Allow {
			return nil, authz.Denied(r, q)
		}
	}
	s.streams.Add(1)
	s.beat.Busy(+1)
	done := false
	defer func() {
		if !done {
			s.streams.Add(-1)
			s.beat.Busy(-1)
		}
	}()
	if time.Since(s.link.Traffic().LastReceived) > limit.Silent {
		if err := probe(ctx, s); err != nil {
			return nil, err
		}
	}
	if deadline, ok := ctx.Deadline(); ok {
		d.Timeout = time.Until(deadline)
	}
	if d.Ask, err = dl.askable(s, q); err != nil {
		return nil, err
	}
	request, err := wire.Append(make([]byte, 0, dialRequest), d.Message())
	if err != nil {
		return nil, err
	}
	stream, err := s.link.OpenStream(ctx, request) // sent in one write
	if err != nil {
		return nil, dialError(ctx, s, err)
	}
	giveUp := func() { stream.Reset(splice.ResetCode(fault.CodeDialCanceled)) }
	stop := run.OnDone(ctx, giveUp)
	calm := s.whenSilent(giveUp)
	resolved, err := dl.answer(stream, d.Ask, q, asked.at)
	calm()
	stop()
	if err == nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	if err != nil {
		code := fault.CodeDialCanceled
		if errors.As(err, new(authz.Refusal)) {
			code = fault.CodePolicyDenied // for the agent's record
		}
		stream.Reset(splice.ResetCode(code))
		return nil, dialError(ctx, s, err)
	}
	if to, err := netip.ParseAddrPort(resolved); err == nil {
		q.Addr = to.Addr().Unmap()
	}
	if q.MeetsOwn() { // a name that resolved to it
		if r := dl.access.DecideThrough(s.ranges, q); !r.Allow {
			stream.Reset(splice.ResetCode(fault.CodePolicyDenied))
			return nil, authz.Denied(r, q)
		}
	}
	done = true
	dl.metrics.Streams.Inc()
	return &hubStream{Stream: stream, parts: dl.parts, by: s, request: q}, nil
}

// unasked is the refusal to dial a name through an agent that cannot list its addresses first.
type unasked struct{ error }

func (u unasked) Unwrap() error { return u.error }

// askable reports whether the agent is asked for the addresses of a name before one is
// dialled. Under a policy, an agent that cannot be asked gets no names: it would connect
// first, and the outcome would reveal what the policy denies.
func (dl *dialer) askable(s *session, q policy.Request) (bool, error) {
	if q.Name == "" || !dl.access.Configured() {
		return false, nil
	}
	if !s.chooses {
		return false, unasked{fault.Newf(fault.CodePolicyDenied, "agent %s is too old for names under the hub's policy",
			s.agent).
			Whyf("it does not let the hub choose among the addresses of %s before it dials", q.Name).
			Hint("bring the agent to the hub's release, or dial an address")}
	}
	return true, nil
}

// answer reads the agent's reply. If the agent was asked for the addresses of a name,
// the policy chooses among them before one is dialled.
func (dl *dialer) answer(stream carrier.Stream, asked bool, q policy.Request,
	at *record.Progress) (resolved string, err error) {
	resolved, addresses, err := wire.ReadReply(stream, asked)
	at.Leads(q, resolved)
	if err != nil || !asked {
		return resolved, err
	}
	var first authz.Ruling
	allowed := addresses[:0]
	for i, a := range addresses {
		q.Addr = a.Addr()
		r := dl.access.Decide(q)
		if i == 0 {
			first = r
			at.LeadsTo(q, a)
		}
		if r.Allow && a.Port() == q.Port {
			if len(allowed) == 0 {
				at.Ruled(r)
				at.LeadsTo(q, a)
			}
			allowed = append(allowed, a)
		}
	}
	if len(allowed) == 0 {
		return "", authz.Denied(first, q)
	}
	if err := wire.Write(stream, wire.Choice(allowed)); err != nil {
		return "", err
	}
	resolved, _, err = wire.ReadReply(stream, false)
	at.Leads(q, resolved)
	return resolved, err
}

// whenSilent calls giveUp when the agent has been silent for limit.Silent although it is
// pinged every second, and another agent could take the dial. That is earlier than the
// link counts as dead, which would end its live streams.
func (s *session) whenSilent(giveUp func()) (stop func()) {
	w := &silence{session: s, giveUp: giveUp, began: time.Now()}
	w.mu.Lock()
	w.timer = time.AfterFunc(limit.Silent, w.check)
	w.mu.Unlock()
	return w.stop
}

// silence watches one agent during a dial.
type silence struct {
	session *session
	giveUp  func()
	began   time.Time

	mu      sync.Mutex
	timer   *time.Timer
	stopped bool
}

func (w *silence) check() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return
	}
	heard := w.session.link.Traffic().LastReceived
	if heard.Before(w.began) {
		heard = w.began
	}
	quiet := time.Since(heard)
	if quiet >= limit.Silent && w.session.cluster.others(w.session) {
		w.session.suspect()
		w.giveUp()
		return
	}
	w.timer.Reset(max(limit.Silent-quiet, limit.Silent/4))
}

func (w *silence) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	w.timer.Stop()
}

func probe(ctx context.Context, s *session) error {
	ctx, cancel := context.WithTimeout(ctx, max(limit.PingWait, 4*s.beat.RTT()))
	defer cancel()
	if err := s.beat.Probe(ctx); err != nil {
		s.suspect()
		return fault.Newf(fault.CodeSessionLost, "agent %s does not answer", s.agent).Whyf("no answer to a ping")
	}
	return nil
}
