// SPDX-License-Identifier: Apache-2.0

package record

import (
	"fmt"
	"net"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/audit"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// Failed records a dial that became no stream. Of many refusals alike it records the first
// ones, and reports whether this was one of them: the log should say no more.
func (r *Recorder) Failed(s *Dial, err error) (told bool) {
	s.fail(err)
	if s.record.Kind != audit.KindRefusal {
		r.Audit.Write(s.record)
		return true
	}
	told, sums := r.refusals.Take(time.Now(), s.record)
	r.writeSums(sums)
	if told {
		r.Audit.Write(s.record)
	}
	return told
}

// RefusedRequest records a request that was refused before it named a destination, within the
// bound of Failed.
func (r *Recorder) RefusedRequest(p Party, peer wire.Peer, err error) (told bool) {
	s := &Dial{audit: r.Audit, begun: time.Now(), record: r.newRecord(p, peer)}
	s.record.Kind = audit.KindRefusal
	return r.Failed(s, err)
}

// RefusedConnection records, counts and logs that a known caller was refused over conn before
// a dial.
func (r *Recorder) RefusedConnection(p Party, conn net.Conn, peer wire.Peer, err error) {
	if r.RefusedRequest(p, peer, err) {
		r.LogPeer(p, conn, err)
		return
	}
	r.Count(err)
}

// LogPeer counts and logs that a peer was refused. The log bounds its lines by cluster and
// caller, and those of unknown peers: so it has to know who it was, as far as that is proven.
func (r *Recorder) LogPeer(who Party, peer interface{ RemoteAddr() net.Addr }, err error) {
	r.Count(err)
	f := fault.From(err)
	log := r.Log
	if who.Caller != "" {
		log = log.With(telemetry.AttrCluster, who.Cluster, telemetry.AttrCaller, who.Caller)
	}
	at := ""
	if a := peer.RemoteAddr(); a != nil {
		at = a.String()
	}
	log.Info("refused", telemetry.AttrPeer, at, telemetry.AttrCode, f.Code, telemetry.AttrReason, clipped(f.Error(), 400))
}

func clipped(s string, n int) string { return wire.Clean(s[:min(len(s), n)]) }

// RefusedWithin is RefusedConnection of what is refused within a connection.
func (r *Recorder) RefusedWithin(p Party, peer wire.Peer, err error) {
	f := fault.From(err)
	r.Count(err)
	if r.RefusedRequest(p, peer, err) {
		r.Log.Info("refused", telemetry.AttrCluster, p.Cluster, telemetry.AttrCaller, p.Caller,
			telemetry.AttrPeer, fmt.Sprintf("%+v", peer),
			telemetry.AttrCode, f.Code, telemetry.AttrReason, clipped(f.Error(), 400))
	}
}

// writeSums records and logs how many refusals had no record of their own.
func (r *Recorder) writeSums(sums []audit.Record) {
	for _, sum := range sums {
		sum.Time = r.Now()
		r.Audit.Write(sum)
		r.Log.Warn("refusals are counted", telemetry.AttrCluster, sum.Cluster, telemetry.AttrCaller, sum.Caller,
			telemetry.AttrTarget, wire.Clean(sum.Asked),
			telemetry.AttrCode, sum.Code, "count", sum.Count, "since", sum.Since)
	}
}
