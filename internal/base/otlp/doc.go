// SPDX-License-Identifier: Apache-2.0

// Package otlp sends traces of dials, and audit records, to an OpenTelemetry collector
// with OTLP over HTTP. It is the only package that uses OpenTelemetry; others use Tracer
// and Span, which cost nothing when disabled. It never blocks a caller: queues are
// bounded, and losses are counted.
//
//	caller ── Span.End ──► queue ──► While ──► collector, /v1/traces
//	audit.Writer ── Export (its own queue) ──► collector, /v1/logs
package otlp
