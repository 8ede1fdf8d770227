// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/audit"
	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/hub/authz"
	"github.com/tombolo-io/tombolo/internal/stream/splice"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// party is who asks over a connection, as far as a dial does not say.
type party struct {
	cluster          id.Cluster
	frontend, caller string
	serial, source   string
	operator         string    // SPIFFE URI
	peer             wire.Peer // of the admin socket: it is recorded, and no policy asks for it
}

type partyKey struct{}

// withParty makes known who asks. Dials and refusals under ctx are recorded with it.
func withParty(ctx context.Context, p party) context.Context {
	return context.WithValue(ctx, partyKey{}, p)
}

// withOperator makes known which operator asks: over the admin port one with a
// certificate, over the admin socket a user of this machine who may open it.
func (h *Hub) withOperator(r *http.Request) context.Context {
	chain := peerOf(r.Context())
	if len(chain) == 0 {
		peer, _ := r.Context().Value(socketPeerKey{}).(wire.Peer)
		return withParty(r.Context(), party{peer: peer})
	}
	p := party{serial: trust.Serial(chain[0]), source: r.RemoteAddr}
	if who, ours := h.credentials.Authentic(chain); ours {
		p.operator = who.URI()
	}
	return withParty(r.Context(), p)
}

// sourceOf is the address that a caller's connection comes from, not valid where
// that is a unix socket.
func sourceOf(ctx context.Context) netip.Addr {
	p, _ := ctx.Value(partyKey{}).(party)
	at, err := netip.ParseAddrPort(p.source)
	if err != nil {
		return netip.Addr{}
	}
	return at.Addr().Unmap().WithZone("")
}

// dialRecorded dials, and leaves a record of the refusal, of the failure, or of the
// stream when it has ended. told says of an error whether the log is to tell of it
// as well: of a flood of refusals it is not, there the sum will.
func (h *Hub) dialRecorded(ctx context.Context, c id.Cluster, frontend string, d wire.Dial) (_ carrier.Stream, told bool, err error) {
	p, _ := ctx.Value(partyKey{}).(party)
	p.cluster, p.frontend, p.caller = c, frontend, d.Caller
	if h.audit == nil {
		begun := time.Now()
		stream, err := h.Dial(ctx, c, d)
		if err != nil {
			told = h.tellFailed(h.recordOf(p, d, begun), err)
		}
		return stream, told, err
	}
	s := h.recordOf(p, d, time.Now())
	ctx = withTrail(ctx, &s.trail)
	err = h.audit.Admit()
	var stream carrier.Stream
	if err == nil {
		stream, err = h.Dial(ctx, c, d)
	}
	if err != nil {
		return nil, h.tellFailed(s, err), err
	}
	s.Stream = stream
	if inner, ok := stream.(*hubStream); ok {
		s.opened(inner)
	}
	return s, false, nil
}

// recordOf begins the record of a dial.
func (h *Hub) recordOf(p party, d wire.Dial, begun time.Time) *recordedStream {
	s := &recordedStream{audit: h.audit, begun: begun, record: h.newRecord(p, d.Peer)}
	s.record.Egress, s.record.Traceparent, s.record.Asked = d.EgressType, d.Trace, d.Address
	s.record.Metadata = audit.MetadataOf(d.Metadata)
	return s
}

func (h *Hub) newRecord(p party, peer wire.Peer) audit.Record {
	r := audit.Record{
		Kind: audit.KindDial, Time: h.now(), At: audit.AtHub, Hub: h.cfg.Name, Cluster: p.cluster.String(), Frontend: p.frontend,
		Caller: p.caller, Operator: p.operator, Serial: p.serial, Source: p.source,
	}
	if !peer.Known {
		peer = p.peer
	}
	if peer.Known {
		r.Peer = &audit.Peer{UID: peer.UID, GID: peer.GID, PID: peer.PID}
	}
	return r
}

// recordedStream is a stream of which a record is written when it has ended.
type recordedStream struct {
	carrier.Stream
	inner    *hubStream
	audit    *audit.Writer
	begun    time.Time
	record   audit.Record
	trail    trail
	up, down splice.Counter
	once     sync.Once
}

// fail completes the record of what became no stream.
func (s *recordedStream) fail(err error) {
	f := fault.From(err)
	s.trail.note(&s.record)
	switch fault.ClassOf(f.Code) {
	case fault.Invalid, fault.Unauthenticated, fault.Denied, fault.NotFound, fault.Exhausted:
		s.record.Kind = audit.KindRefusal // an answer of ours or of the agent's, not of the target's
	}
	if f.Code == fault.CodeAudit {
		s.record.Kind = audit.KindRefusal
	}
	if f.Code == fault.CodePolicyDenied {
		s.record.Verdict, s.record.Rule, s.record.Policy = audit.Deny, "", ""
	}
	var by authz.Refusal
	if errors.As(err, &by) {
		s.record.Rule, s.record.Policy = by.Ruling.Rule, by.Ruling.Version.String()
	}
	s.record.Duration = audit.Millis(time.Since(s.begun))
	s.record.End(f)
}

// opened notes what is known of a stream now.
func (s *recordedStream) opened(inner *hubStream) {
	s.inner = inner
	s.record.Agent = inner.session.agent.String()
	if q := inner.request; q.Addr.IsValid() {
		s.record.Resolved = netip.AddrPortFrom(q.Addr, q.Port).String()
	}
	if inner.allowed.Judged {
		s.record.Verdict, s.record.Rule, s.record.Policy = audit.Allow, inner.allowed.Rule, inner.allowed.Version.String()
	}
}

// ended writes the record; the first reason stands.
func (s *recordedStream) ended() {
	s.once.Do(func() {
		s.record.Duration = audit.Millis(time.Since(s.begun))
		s.record.Up, s.record.Down = s.up.Load(), s.down.Load()
		s.record.End(nil)
		if s.inner != nil && s.inner.ended != "" {
			s.record.End(fault.New(s.inner.ended, ""))
			if r := s.inner.against.Load(); r != nil && s.inner.ended == fault.CodePolicyDenied {
				s.record.Verdict, s.record.Rule, s.record.Policy = audit.Deny, r.Rule, r.Version.String()
				s.record.Reason = "a changed policy refuses the stream"
			}
		}
		s.audit.Write(s.record)
	})
}

func (s *recordedStream) Read(b []byte) (int, error) {
	n, err := s.Stream.Read(b)
	s.down.Add(int64(n))
	return n, err
}

func (s *recordedStream) Write(b []byte) (int, error) {
	n, err := s.Stream.Write(b)
	s.up.Add(int64(n))
	return n, err
}

func (s *recordedStream) CopyFrom(src io.Reader, moved func(int)) (srcErr, err error) {
	return s.Stream.CopyFrom(src, counting(&s.up, moved))
}

func (s *recordedStream) CopyTo(dst io.Writer, moved func(int)) (dstErr, err error) {
	return s.Stream.CopyTo(dst, counting(&s.down, moved))
}

// Charge tells of bytes that a frontend holds until the stream takes them.
func (s *recordedStream) Charge(n int64) {
	if s.inner != nil {
		s.inner.Charge(n)
	}
}

// Watch says how to ask whether the caller has left.
func (s *recordedStream) Watch(left func() (sends, takes bool)) {
	if s.inner != nil {
		s.inner.Watch(left)
	}
}

func (s *recordedStream) Close() error {
	defer s.ended()
	return s.Stream.Close()
}

func (s *recordedStream) Reset(code uint32) error {
	defer s.ended()
	return s.Stream.Reset(code)
}
