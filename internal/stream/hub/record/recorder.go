// SPDX-License-Identifier: Apache-2.0

package record

import (
	"context"
	"crypto/x509"
	"log/slog"
	"net/netip"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/audit"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// Party is the peer that uses a connection.
type Party struct {
	Cluster          id.Cluster
	Frontend, Caller string
	Serial, Source   string
	Operator         string    // SPIFFE URI
	Peer             wire.Peer // of the admin socket: it is recorded, and no policy asks for it
}

// Address is what the caller's connection comes from, not valid for a unix socket.
func (p Party) Address() netip.Addr {
	if p.Source == "" {
		return netip.Addr{}
	}
	at, err := netip.ParseAddrPort(p.Source)
	if err != nil { // without a port
		addr, _ := netip.ParseAddr(p.Source)
		return addr.Unmap().WithZone("")
	}
	return at.Addr().Unmap().WithZone("")
}

// Recorder writes records of dials, refusals and changes, and logs refusals.
type Recorder struct {
	Options
	peers    peerRefusals
	refusals audit.Tally
}

// Options are what a recorder needs.
type Options struct {
	Audit     *audit.Writer // nil: no records
	Log       *slog.Logger
	Now       func() time.Time
	Hub       string                                              // its name
	Authentic func(chain []*x509.Certificate) (id.Identity, bool) // says whose a certificate is, if it is of ours
	Count     func(err error)                                     // counts a refused connection or request
}

// New makes a recorder.
func New(o Options) *Recorder { return &Recorder{Options: o} }

// On says whether records are written.
func (r *Recorder) On() bool { return r.Audit != nil }

// Admit is nil if a record can be written.
func (r *Recorder) Admit() error { return r.Audit.Admit() }

// Dial begins the record of a dial.
func (r *Recorder) Dial(p Party, d wire.Dial, begun time.Time) *Dial {
	s := &Dial{audit: r.Audit, begun: begun, record: r.newRecord(p, d.Peer), said: d.Metadata}
	s.record.Egress, s.record.Traceparent, s.record.Asked = d.EgressType, d.Trace, d.Address
	if d.Datagrams() {
		s.record.Network = d.Network
	}
	s.record.Metadata = audit.MetadataOf(d.Metadata)
	return s
}

func (r *Recorder) newRecord(p Party, peer wire.Peer) audit.Record {
	rec := audit.Record{
		Kind: audit.KindDial, Time: r.Now(), At: audit.AtHub, Hub: r.Hub, Cluster: p.Cluster.String(), Frontend: p.Frontend,
		Caller: p.Caller, Operator: p.Operator, Serial: p.Serial, Source: p.Source,
	}
	if !peer.Known {
		peer = p.Peer
	}
	if peer.Known {
		rec.Peer = &audit.Peer{UID: peer.UID, GID: peer.GID, PID: peer.PID}
	}
	return rec
}

// Change records that an operator has changed who may use this hub.
func (r *Recorder) Change(p Party, kind audit.Kind, subject, what string) {
	if r.Audit == nil {
		return
	}
	rec := r.newRecord(p, wire.Peer{})
	rec.Kind, rec.Subject = kind, subject
	rec.End(nil)
	rec.Reason = what
	r.Audit.Write(rec)
}

// Run ends each interval in time, also one in which nobody is refused any more.
func (r *Recorder) Run(ctx context.Context) error {
	turn := func() { r.Turn(time.Now()) }
	defer turn()
	return run.Every(ctx, limit.AuditTold, turn)
}

// Turn ends an interval: it records and logs what was counted until now.
func (r *Recorder) Turn(now time.Time) {
	if ended := r.peers.Turn(now); r.Audit != nil {
		r.writeSummaries(ended)
	}
	r.writeSums(r.refusals.Turn(now))
}
