// SPDX-License-Identifier: Apache-2.0

package otlp

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/tombolo-io/tombolo/internal/base/reqmeta"
)

// Kind says on which side of a call a span stands.
type Kind = trace.SpanKind

// The kinds.
const (
	Server   = trace.SpanKindServer
	Internal = trace.SpanKindInternal
	Client   = trace.SpanKindClient
)

// Span is one step of a dial. The zero value is one of a Tracer that is turned
// off: everything that is done with it does nothing, and allocates nothing.
type Span struct {
	span   trace.Span
	tracer *Tracer
	ctx    context.Context // with span, as OpenTelemetry wants it
}

// Begin starts a span in the trace that the caller named, or in a new one.
func (t *Tracer) Begin(ctx context.Context, name, parent, state string) Span {
	if t == nil {
		return Span{}
	}
	if parent != "" {
		ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": parent, "tracestate": state})
	}
	return t.start(ctx, name, Server)
}

func (t *Tracer) start(ctx context.Context, name string, kind Kind) Span {
	ctx, span := t.tracer.Start(ctx, name, trace.WithSpanKind(kind))
	return Span{span, t, ctx}
}

// On reports whether there is a trace, be it recorded or only passed on.
func (s Span) On() bool { return s.span != nil }

// Child starts a step of a step.
func (s Span) Child(name string, kind Kind) Span {
	if !s.On() {
		return Span{}
	}
	return s.tracer.start(s.ctx, name, kind)
}

// Set notes something that is no secret.
func (s Span) Set(key, value string) {
	if s.On() && value != "" {
		s.span.SetAttributes(attribute.String(key, value))
	}
}

// Context is what the next hop is told: traceparent and tracestate.
func (s Span) Context() (parent, state string) {
	if !s.On() {
		return "", ""
	}
	m := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(s.ctx, m)
	return reqmeta.Trace([]string{m["traceparent"]}, []string{m["tracestate"]})
}

// End ends the step; code is empty or that of the fault by which it failed.
func (s Span) End(code string) {
	if !s.On() {
		return
	}
	if code != "" {
		s.span.SetAttributes(attribute.String("tombolo.code", code))
		s.span.SetStatus(codes.Error, code)
	}
	s.span.End()
}

type spanKey struct{}

// With makes the span known under ctx.
func With(ctx context.Context, s Span) context.Context {
	if !s.On() {
		return ctx
	}
	return context.WithValue(ctx, spanKey{}, s)
}

// Of is the span that With made known.
func Of(ctx context.Context) Span {
	s, _ := ctx.Value(spanKey{}).(Span)
	return s
}
