// SPDX-License-Identifier: Apache-2.0

// Package otlp sends traces of dials, and lines of audit records, to an
// OpenTelemetry collector by OTLP over HTTP. It is the one place that knows
// OpenTelemetry; rooms see Tracer and Span, which are free of cost when turned
// off. It never holds up who hands something over: queues are bounded, and what
// is lost is counted.
//
//	room ── Span.End ──► queue ──► While ──► collector, /v1/traces
//	audit.Writer ── Export (its own queue) ──► collector, /v1/logs
package otlp
