// SPDX-License-Identifier: Apache-2.0

package otlp

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
)

// Reasons for which spans are lost.
const (
	lostQueue   = "queue_full" // they arrived faster than the collector accepted them
	lostRefused = "refused"    // the collector rejected them
	lostStop    = "stopped"    // the process ended before they were sent
)

// Options identify the sender.
type Options struct {
	Log     *slog.Logger
	Reg     prometheus.Registerer
	Service string // tombolo-hub or tombolo-agent
	Version string
	Name    string // of this instance
}

// Tracer makes spans. A nil Tracer is disabled.
type Tracer struct {
	tracer   trace.Tracer
	log      *slog.Logger
	metrics  *telemetry.Traces
	client   *client
	exporter *otlptrace.Exporter
	queue    chan sdk.ReadOnlySpan
	stopped  atomic.Bool
	broken   bool         // the last try failed; used by the sending goroutine only
	told     atomic.Int64 // when a loss was last logged, Unix nanoseconds
}

// NewTracer makes a tracer, nil without an endpoint.
func NewTracer(c Config, o Options) (*Tracer, error) {
	if c.Traces.URL == "" {
		return nil, nil
	}
	client, err := newClient(c.Traces)
	if err != nil {
		return nil, err
	}
	t := &Tracer{
		log: o.Log, client: client, queue: make(chan sdk.ReadOnlySpan, spanQueue),
		metrics: telemetry.NewTraces(o.Reg, []string{lostQueue, lostRefused, lostStop}),
	}
	t.exporter = otlptrace.NewUnstarted(upload{t})
	most := sdk.SpanLimits{
		AttributeValueLengthLimit: limit.AuditText, AttributeCountLimit: spanAttributes, EventCountLimit: 1,
		LinkCountLimit:              1,
		AttributePerEventCountLimit: 1, AttributePerLinkCountLimit: 1,
	}
	provider := sdk.NewTracerProvider(
		sdk.WithSampler(sdk.ParentBased(sdk.TraceIDRatioBased(c.Ratio))),
		sdk.WithResource(resource.NewSchemaless(o.attributes()...)),
		sdk.WithRawSpanLimits(most), sdk.WithSpanProcessor(queued{t}),
	)
	t.tracer = provider.Tracer("github.com/tombolo-io/tombolo")
	return t, nil
}

func (o Options) attributes() []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.String("service.name", o.Service), attribute.String("service.version", o.Version),
		attribute.String("service.instance.id", o.Name),
	}
}

// queued is a span processor that never blocks.
type queued struct{ t *Tracer }

func (q queued) OnStart(context.Context, sdk.ReadWriteSpan) {}
func (q queued) Shutdown(context.Context) error             { return nil }
func (q queued) ForceFlush(context.Context) error           { return nil }

func (q queued) OnEnd(s sdk.ReadOnlySpan) {
	if q.t.stopped.Load() {
		q.t.lose(lostStop, 1)
		return
	}
	select {
	case q.t.queue <- s:
	default:
		q.t.lose(lostQueue, 1)
	}
}

// lose counts spans that will not arrive, and logs that at intervals.
func (t *Tracer) lose(reason string, n int64) {
	if n == 0 {
		return
	}
	t.metrics.Lost.WithLabelValues(reason).Add(float64(n))
	now, last := time.Now().UnixNano(), t.told.Load()
	if now-last >= int64(limit.AuditTold) && t.told.CompareAndSwap(last, now) {
		t.log.Warn("spans of traces are lost", "spans", n, telemetry.AttrReason, reason, "collector", t.client.URL)
	}
}

// While calls fn and sends meanwhile. After fn it sends what is still queued, for
// limit.Shutdown at most.
func (t *Tracer) While(ctx context.Context, fn func() error) error {
	if t == nil {
		return fn()
	}
	steady := context.WithoutCancel(ctx)
	hard, abort := context.WithCancel(steady)
	defer abort()
	g := run.NewGroup(steady)
	g.Do(func(ctx context.Context) { t.own(ctx, hard) })
	err := fn()
	t.stopped.Store(true)
	g.Stop()
	bound, cancel := context.WithTimeout(steady, limit.Shutdown)
	defer cancel()
	if !g.WaitContext(bound) {
		abort()
		g.Wait()
	}
	t.client.close()
	return err
}

// own is the goroutine that sends. When ctx has ended it tries once more for each batch,
// until hard ends.
func (t *Tracer) own(ctx, hard context.Context) {
	tick := time.NewTicker(spanDelay)
	defer tick.Stop()
	var batch []sdk.ReadOnlySpan
	for ctx.Err() == nil {
		due := false
		select {
		case s := <-t.queue:
			batch = append(batch, s)
			due = len(batch) >= spanBatch
		case <-tick.C:
			due = len(batch) > 0
		case <-ctx.Done():
		}
		if due && t.send(ctx, hard, batch) {
			batch = nil
		}
	}
	for {
		for len(batch) < spanBatch && len(t.queue) > 0 {
			batch = append(batch, <-t.queue)
		}
		if len(batch) == 0 {
			return
		}
		if !t.send(ctx, hard, batch) {
			t.lose(lostStop, int64(len(batch)))
		}
		batch = nil
	}
}

// send tries until the batch is accepted or rejected, or ctx ends.
func (t *Tracer) send(ctx, hard context.Context, batch []sdk.ReadOnlySpan) (done bool) {
	for {
		err := t.exporter.ExportSpans(hard, batch)
		switch {
		case err == nil:
			if t.broken {
				t.log.Info("the collector takes spans again", "collector", t.client.URL)
			}
			t.broken = false
			return true
		case errors.Is(err, errRefused):
			t.lose(lostRefused, int64(len(batch)))
			return true
		}
		if !t.broken {
			t.log.Warn("the collector takes no spans", "collector", t.client.URL, telemetry.AttrReason, err)
		}
		t.broken = true
		if !run.Wait(ctx, pause(err)) {
			return false
		}
	}
}

// upload is the transport of OpenTelemetry's exporter.
type upload struct{ t *Tracer }

func (upload) Start(context.Context) error { return nil }
func (upload) Stop(context.Context) error  { return nil }

// UploadTraces sends TracesData, which has the bytes of ExportTraceServiceRequest
// without the gRPC service that comes with its type.
func (u upload) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	body, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: spans})
	if err != nil {
		return err
	}
	rejected, err := u.t.client.post(ctx, body)
	sent := int64(0)
	for _, r := range spans {
		for _, s := range r.GetScopeSpans() {
			sent += int64(len(s.GetSpans()))
		}
	}
	rejected = min(rejected, sent) // a collector may claim anything
	u.t.lose(lostRefused, rejected)
	if err == nil {
		u.t.metrics.Sent.Add(float64(sent - rejected))
	}
	return err
}
