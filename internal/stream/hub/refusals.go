// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/audit"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// tellFailed records what became no stream. Of refusals that are many alike it
// records the first, and reports whether this was one: the log tells no more.
func (h *Hub) tellFailed(s *recordedStream, err error) (told bool) {
	s.fail(err)
	if s.record.Kind != audit.KindRefusal {
		h.audit.Write(s.record)
		return true
	}
	told, sums := h.refusals.Take(time.Now(), s.record)
	h.tellSums(sums)
	if told {
		h.audit.Write(s.record)
	}
	return told
}

// recordRefusal records a request that was refused before it named a destination,
// within the bound of tellFailed.
func (h *Hub) recordRefusal(ctx context.Context, peer wire.Peer, err error) (told bool) {
	p, known := ctx.Value(partyKey{}).(party)
	if !known {
		return true
	}
	s := &recordedStream{audit: h.audit, begun: time.Now(), record: h.newRecord(p, peer)}
	s.record.Kind = audit.KindRefusal
	return h.tellFailed(s, err)
}

// refuseKnown records, counts and logs that somebody who is known was refused over
// conn, before a dial.
func (h *Hub) refuseKnown(ctx context.Context, conn net.Conn, peer wire.Peer, err error) {
	if h.recordRefusal(ctx, peer, err) {
		p, _ := ctx.Value(partyKey{}).(party)
		h.refused(p, conn, err)
		return
	}
	h.metrics.Refused.WithLabelValues(outcome(fault.From(err))).Inc()
}

// refusedWithin is refuseKnown of what is refused within a connection.
func (h *Hub) refusedWithin(ctx context.Context, peer wire.Peer, err error) {
	f := fault.From(err)
	h.metrics.Refused.WithLabelValues(outcome(f)).Inc()
	if p, _ := ctx.Value(partyKey{}).(party); h.recordRefusal(ctx, peer, err) {
		h.log.Info("refused", telemetry.AttrCluster, p.cluster, telemetry.AttrCaller, p.caller, telemetry.AttrPeer, fmt.Sprintf("%+v", peer),
			telemetry.AttrCode, f.Code, telemetry.AttrReason, clip(f.Error(), 400))
	}
}

// tellSums records and logs how many refusals were not told one by one.
func (h *Hub) tellSums(sums []audit.Record) {
	for _, r := range sums {
		r.Time = h.now()
		h.audit.Write(r)
		h.log.Warn("refusals are counted", telemetry.AttrCluster, r.Cluster, telemetry.AttrCaller, r.Caller, telemetry.AttrTarget, wire.Clean(r.Asked),
			telemetry.AttrCode, r.Code, "count", r.Count, "since", r.Since)
	}
}
