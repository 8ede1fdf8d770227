// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"crypto/tls"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/base/untrusted"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/heartbeat"
	"github.com/tombolo-io/tombolo/internal/stream/hub/credentials"
	"github.com/tombolo-io/tombolo/internal/stream/hub/quota"
	"github.com/tombolo-io/tombolo/internal/stream/hub/record"
	"github.com/tombolo-io/tombolo/internal/stream/splice"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
	pb "github.com/tombolo-io/tombolo/proto"
)

// agents serves the sessions of agents.
type agents struct{ *parts }

// session is one live agent. Its life:
//
//	TLS done --Hello--> checked --Welcome--> live --Drain--> draining --> ended
//	                       \--refusal--> ended          \--dead link, Goodbye, Close--> ended
type session struct {
	cluster  *cluster
	agent    id.Agent
	account  *quota.Account // of the agent
	instance string         // random for each start of the agent
	software string
	ranges   []string
	since    time.Time
	certEnd  time.Time
	who      id.Identity
	issued   time.Time // the begin of its certificate's life
	peer     string
	link     carrier.Session
	chooses  bool   // the agent lets the hub choose among the addresses of a name
	secret   []byte // ties further connections to it; nil: there are none. Never logged
	beat     *heartbeat.Beat

	places sync.Mutex // held while coming and the link's connections are counted
	coming int        // connections being added

	mu     sync.Mutex
	losses int // connections lost, except those that were not needed
	newest *admin.Loss

	streams  atomic.Int64 // live streams and pending dials
	load     atomic.Int64 // streams that the agent reports over all of its sessions
	draining atomic.Bool
	missing  atomic.Int64                // connections lost and not replaced
	ended    atomic.Pointer[fault.Fault] // the reason, set before the link is closed
	doubt    sync.Once
	up, down splice.Counter
}

func (s *session) status() admin.AgentStatus {
	info := s.link.Info()
	s.mu.Lock()
	losses, newest := s.losses, s.newest
	s.mu.Unlock()
	return admin.AgentStatus{
		ConnectionsLost: losses, LastLoss: newest,
		ID: s.agent.String(), Connected: true, Draining: s.draining.Load(), Since: s.since.UTC(),
		Peer: s.peer, Software: s.software, Connections: info.Connections,
		RTTMillis: float64(s.beat.RTT().Microseconds()) / 1000, Streams: int(s.streams.Load()),
		BytesIn: s.up.Load(), BytesOut: s.down.Load(), Ranges: s.ranges, CertificateEnd: s.certEnd.UTC(),
	}
}

func (s *session) candidate(tried bool, now time.Time) candidate {
	return candidate{
		tried: tried, since: s.since,
		draining: s.draining.Load() || !now.Before(s.certEnd),
		load:     int(max(s.streams.Load(), s.load.Load())),
	}
}

// suspect pings the session at the live interval from now on: a dead link is noticed
// within limit.DeadLive, before it delays further dials.
func (s *session) suspect() { s.doubt.Do(func() { s.beat.Busy(+1) }) }

// end sends the agent the reason, and closes the session once the agent has read it or
// after limit.Farewell. The first reason stands.
func (s *session) end(why *fault.Fault) {
	if s.ended.CompareAndSwap(nil, why) {
		s.beat.Send(goodbye(why))
	}
	s.leave() // even if the agent has sent Goodbye and does not close
}

func goodbye(why *fault.Fault) *pb.Control {
	return &pb.Control{Frame: &pb.Control_Goodbye{Goodbye: &pb.Goodbye{Reason: wire.ToFault(why)}}}
}

// leave lets the agent close first: only that shows that it has read the Goodbye.
func (s *session) leave() {
	timer := time.NewTimer(limit.Farewell)
	defer timer.Stop()
	select {
	case <-s.link.Done():
	case <-timer.C:
	}
	s.link.Close()
}

// serveSession serves one agent's connection from Hello on, or adds it to the session that
// it belongs to. It returns the function that serves the session until its end: a handshake
// needs a large stack, which ten thousand sessions must not keep.
func (ag *agents) serveSession(ctx context.Context, conn *tls.Conn, known func()) (next func(context.Context)) {
	a, refusal := ag.admit(conn)
	if refusal == nil {
		a.known = known
	} else if chain := conn.ConnectionState().PeerCertificates; len(chain) > 0 {
		ag.record.RefusedPeer("session", chain, addrText(conn), refusal)
	}
	g, err := ag.greet(ctx, a, refusal)
	switch {
	case err != nil:
	case g.joins != nil:
		err = ag.attach(a, g.joins)
		ag.metrics.Attaches.WithLabelValues(outcome(fault.From(err))).Inc()
	default:
		next, err = ag.beginSession(a, g)
	}
	if err != nil {
		ag.record.LogPeer(ag.proven(conn), conn, err)
		conn.Close()
	}
	return next
}

// beginSession starts the mux on a connection; serve runs the session.
func (ag *agents) beginSession(a arrival, g agreement) (serve func(context.Context), err error) {
	account := a.cluster.accounts.Agent(a.agent)
	if !account.Arrive() {
		return nil, fault.Newf(fault.CodeLimit, "agent %s has %d connections that are no session yet", a.agent,
			limit.SessionsComing)
	}
	s := &session{
		cluster: a.cluster, agent: a.agent, account: account, instance: g.hello.GetInstance(),
		software: clip(g.hello.GetSoftware(), 64),
		ranges:   clipAll(g.hello.GetRanges()), since: ag.now(), peer: a.conn.RemoteAddr().String(),
		certEnd: a.leaf().NotAfter, who: a.who, issued: credentials.IssuedAt(a.leaf()), secret: g.secret, chooses: g.chooses,
	}
	further := newControls()
	link, err := carrier.Server(a.conn, carrier.Options{
		Incoming: limit.AgentStreams, Accept: further.offer, Connections: g.connections, Budget: a.cluster.accounts.Budget,
		Tally: account.UnreadTally(),
		Lost:  func(l carrier.Loss) { ag.lost(s, l) },
	})
	if err != nil {
		account.Arrived()
		return nil, err
	}
	s.link = link
	return func(ctx context.Context) {
		defer link.Close()
		ag.runSession(ctx, s, further)
	}, nil
}

// partyOf is the agent of a session, for records.
func (ag *agents) partyOf(s *session) record.Party {
	who := id.Identity{TrustDomain: ag.credentials.CA().TrustDomain(), Role: id.RoleAgent, Cluster: s.cluster.name,
		Name: s.agent.String()}
	return record.Party{Cluster: who.Cluster, Caller: who.URI()}
}

// runSession accepts the agent's control stream, makes the session available for dials and
// runs it until it ends.
func (ag *agents) runSession(ctx context.Context, s *session, controls *controls) {
	control, err := controls.take(ctx, s.link.Done())
	if err != nil {
		s.account.Arrived()
		ag.record.LogPeer(ag.partyOf(s), s.link, err)
		return
	}
	s.beat = heartbeat.New(heartbeat.Options{
		Stream:       control,
		Next:         func(ctx context.Context) (heartbeat.Stream, error) { return controls.take(ctx, s.link.Done()) },
		Done:         s.link.Done(),
		End:          func() { s.link.Close() },
		LastReceived: func() time.Time { return s.link.Traffic().LastReceived },
		OnFrame:      func(f *pb.Control) { ag.onFrame(s, f) },
		OnRTT:        func(d time.Duration) { ag.metrics.RTT.Observe(d.Seconds()) },
	})
	older, err := s.cluster.join(s)
	s.account.Arrived() // now counted as a session, or refused
	if err != nil {
		ag.record.LogPeer(ag.partyOf(s), s.link, err)
		control.SetWriteDeadline(time.Now().Add(limit.Farewell))
		if wire.Write(control, goodbye(fault.From(err))) == nil {
			s.leave()
		}
		return
	}
	for _, old := range older {
		old.suspect()
	}
	ag.metrics.Sessions.Inc()
	log := ag.log.With(telemetry.AttrCluster, s.cluster.name, telemetry.AttrAgent, s.agent, telemetry.AttrPeer, s.peer)
	log.Info("agent connected", "software", s.software, "ranges", s.ranges)

	stop := run.OnDone(ctx, func() { s.end(fault.New(fault.CodeDraining, "the hub stopped")) })
	// Revoked after it was identified: the revocation did not see this session.
	if f := ag.credentials.Refusal(s.who, s.issued); f != nil {
		s.ended.CompareAndSwap(nil, f)
		s.link.Close()
	}
	err = s.beat.Run(context.WithoutCancel(ctx))
	stop()
	why := fault.From(err)
	if why == nil {
		why = fault.New(fault.CodeSessionLost, "the session ended")
	}
	s.ended.CompareAndSwap(nil, why)
	s.link.Close()
	why = s.ended.Load()
	s.cluster.leave(s, why, ag.now())
	ag.metrics.SessionEnds.WithLabelValues(telemetry.Outcome(why.Code)).Inc()
	log.Info("agent left", telemetry.AttrCode, why.Code, telemetry.AttrReason, why.Error())
}

// onFrame handles a frame of the control stream. Frames that are not for a hub are
// ignored, as the protocol requires.
func (ag *agents) onFrame(s *session, f *pb.Control) {
	switch x := f.GetFrame().(type) {
	case *pb.Control_Load:
		s.load.Store(int64(x.Load.GetStreams()))
	case *pb.Control_Drain:
		if !s.draining.Swap(true) {
			ag.log.Info("agent drains", telemetry.AttrCluster, s.cluster.name, telemetry.AttrAgent, s.agent)
		}
	case *pb.Control_Goodbye:
		why := wire.FromFault(x.Goodbye.GetReason())
		if why == nil {
			why = fault.New(fault.CodeSessionLost, "the agent said goodbye")
		}
		s.ended.CompareAndSwap(nil, why)
		s.draining.Store(true)
		// A Goodbye may overtake the last bytes of streams on another connection.
		// The agent closes the session shortly; what has arrived by then reaches
		// the caller, however slowly it reads.
		if s.streams.Load() == 0 {
			s.link.Close()
		}
	}
}

func clip(s string, n int) string { return untrusted.Text(s, n) }

// untold stands for the ranges that are left out.
const untold = "..."

// clipAll bounds the ranges that an agent states, in number and in bytes: they are
// kept for each session and shown to operators.
func clipAll(in []string) (out []string) {
	left := rangesText
	for _, s := range in {
		s = clip(s, 300)
		if left -= len(s); left < 0 {
			return append(out, untold)
		}
		out = append(out, s)
	}
	return out
}
