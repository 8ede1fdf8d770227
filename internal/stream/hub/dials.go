// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"log/slog"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/audit"
	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/hub/frontend"
	"github.com/tombolo-io/tombolo/internal/stream/hub/record"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// forCaller binds a frontend's dials to one cluster and one caller, and counts them.
func (dl *dialer) forCaller(who record.Party) frontend.DialFunc {
	source := who.Address()
	return func(ctx context.Context, d wire.Dial) (carrier.Stream, error) {
		start := time.Now()
		d.Caller, d.Source = who.Caller, source
		ctx, span := dl.beginTrace(ctx, who.Cluster, who.Frontend, &d)
		stream, told, err := dl.dialRecorded(ctx, who, d)
		endSpan(span, err)
		dl.metrics.DialDuration.WithLabelValues(who.Frontend).Observe(time.Since(start).Seconds())
		f := fault.From(err)
		dl.metrics.Dials.WithLabelValues(who.Frontend, outcome(f)).Inc()
		if f != nil {
			level := slog.LevelWarn
			if !told {
				level = slog.LevelDebug
			}
			dl.log.Log(ctx, level, "dial failed", telemetry.AttrCluster, who.Cluster,
				telemetry.AttrTarget, wire.Clean(audit.Destination(d.Address)), telemetry.AttrCaller, who.Caller,
				telemetry.AttrCode, f.Code, telemetry.AttrReason, f.Error())
			return nil, err
		}
		dl.log.Debug("dialled", telemetry.AttrCluster, who.Cluster, telemetry.AttrTarget, d.Address,
			telemetry.AttrCaller, who.Caller)
		return stream, nil
	}
}

// dialRecorded dials and records the refusal, the failure, or the stream once it has ended.
// told reports whether an error is to be logged as a warning: of a flood of refusals only the
// sum is.
func (dl *dialer) dialRecorded(ctx context.Context, who record.Party,
	d wire.Dial) (_ carrier.Stream, told bool, err error) {
	begun := time.Now()
	var rec *record.Dial
	var at *record.Progress
	if dl.record.On() {
		rec = dl.record.Dial(who, d, begun)
		at = rec.Progress()
		err = dl.record.Admit()
	}
	var stream *hubStream
	open := dl.dial
	if who.Frontend == policy.FlowBack {
		open = dl.dialPort
	}
	if err == nil {
		stream, err = open(ctx, who.Cluster, d, at)
	}
	switch {
	case err != nil:
		if rec == nil {
			rec = dl.record.Dial(who, d, begun)
		}
		return nil, dl.record.Failed(rec, err), err
	case rec == nil:
		return stream, false, nil
	}
	return rec.Opened(stream), false, nil
}
