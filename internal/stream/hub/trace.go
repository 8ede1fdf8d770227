// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"

	"github.com/tombolo-io/tombolo/internal/access/audit"
	"github.com/tombolo-io/tombolo/internal/access/authz"
	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/otlp"
	"github.com/tombolo-io/tombolo/internal/stream/hub/record"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// The spans of a dial. Without a tracer nothing here allocates.
//
//	dial ──┬─ decide
//	       ├─ pick
//	       └─ ask ──► the agent: dial ──┬─ decide
//	                                    └─ connect
func (dl *dialer) beginTrace(ctx context.Context, c id.Cluster, frontend string,
	d *wire.Dial) (context.Context, otlp.Span) {
	if dl.trace == nil {
		return ctx, otlp.Span{}
	}
	span := dl.trace.Begin(ctx, "dial", d.Trace, d.TraceState)
	span.Set("tombolo.at", "hub")
	span.Set("tombolo.hub", dl.cfg.Name)
	span.Set("tombolo.cluster", c.String())
	span.Set("tombolo.frontend", frontend)
	span.Set("tombolo.caller", d.Caller)
	span.Set("tombolo.asked", wire.Clean(audit.Destination(d.Address)))
	// The record names the hub's span, which is a part of the caller's trace.
	d.Trace, d.TraceState = span.Context()
	return otlp.With(ctx, span), span
}

func endSpan(s otlp.Span, err error) {
	if !s.On() {
		return
	}
	if f := fault.From(err); f != nil {
		s.End(outcome(f))
		return
	}
	s.End("")
}

// decideFirst asks the policy about what is known before an agent is asked.
func (dl *dialer) decideFirst(ctx context.Context, q policy.Request, at *record.Progress) (err error) {
	span := otlp.Of(ctx).Child("decide", otlp.Internal)
	r := dl.access.Decide(q)
	at.Ruled(r)
	if !r.Allow && !r.Open {
		err = authz.Denied(r, q)
	}
	span.Set("tombolo.rule", r.Rule)
	endSpan(span, err)
	return err
}

// ask is dialThrough with its span, of which the agent's are a part.
func (dl *dialer) ask(ctx context.Context, s *session, d dialled) (*hubStream, error) {
	d.at.Asks(s.agent.String())
	span := otlp.Of(ctx).Child("ask", otlp.Client)
	if !span.On() {
		return dl.dialThrough(ctx, s, d)
	}
	span.Set("tombolo.agent", s.agent.String())
	d.wire.Trace, d.wire.TraceState = span.Context()
	stream, err := dl.dialThrough(ctx, s, d)
	if err == nil {
		span.Set("tombolo.resolved", authz.Destination(stream.request))
	}
	endSpan(span, err)
	return stream, err
}
