// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"

	"github.com/tombolo-io/tombolo/internal/access/audit"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/otlp"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// traced notes what a dial is about, and makes its span known to the steps.
func (a *Agent) traced(ctx context.Context, span otlp.Span, d wire.Dial) context.Context {
	if !span.On() {
		return ctx
	}
	span.Set("tombolo.at", audit.AtAgent)
	span.Set("tombolo.caller", wire.Clean(d.Caller))
	span.Set("tombolo.asked", wire.Clean(audit.Destination(d.Address)))
	if me := a.identity(); me.Joined() {
		span.Set("tombolo.cluster", me.Who.Cluster.String())
		span.Set("tombolo.agent", me.Who.Name)
	}
	return otlp.With(ctx, span)
}

func endSpan(s otlp.Span, f *fault.Fault) {
	if f == nil {
		s.End("")
		return
	}
	s.End(outcome(f))
}
