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

// Kind is the side of a call that a span describes.
type Kind = trace.SpanKind

// The kinds.
const (
	Server   = trace.SpanKindServer
	Internal = trace.SpanKindInternal
	Client   = trace.SpanKindClient
)

// Span is one step of a dial. The zero value belongs to a disabled Tracer: its methods do
// nothing, and allocate nothing.
type Span struct {
	span   trace.Span
	tracer *Tracer
	ctx    context.Context // carries span, as OpenTelemetry requires
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

// On reports whether there is a trace, recorded or only propagated.
func (s Span) On() bool { return s.span != nil }

// Child starts a step of a step.
func (s Span) Child(name string, kind Kind) Span {
	if !s.On() {
		return Span{}
	}
	return s.tracer.start(s.ctx, name, kind)
}

// Set sets an attribute. The value must not be a secret.
func (s Span) Set(key, value string) {
	if s.On() && value != "" {
		s.span.SetAttributes(attribute.String(key, value))
	}
}

// Context returns traceparent and tracestate for the next hop.
func (s Span) Context() (parent, state string) {
	if !s.On() {
		return "", ""
	}
	m := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(s.ctx, m)
	return reqmeta.Trace([]string{m["traceparent"]}, []string{m["tracestate"]})
}

// End ends the step; code is the fault code of its failure, or empty.
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

// With returns a context with the span.
func With(ctx context.Context, s Span) context.Context {
	if !s.On() {
		return ctx
	}
	return context.WithValue(ctx, spanKey{}, s)
}

// Of returns the span of a context from With.
func Of(ctx context.Context) Span {
	s, _ := ctx.Value(spanKey{}).(Span)
	return s
}
