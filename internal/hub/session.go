// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"crypto/tls"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tombolo-io/tombolo/internal/admin"
	"github.com/tombolo-io/tombolo/internal/carrier"
	"github.com/tombolo-io/tombolo/internal/fault"
	"github.com/tombolo-io/tombolo/internal/heartbeat"
	"github.com/tombolo-io/tombolo/internal/id"
	"github.com/tombolo-io/tombolo/internal/limit"
	"github.com/tombolo-io/tombolo/internal/run"
	"github.com/tombolo-io/tombolo/internal/splice"
	"github.com/tombolo-io/tombolo/internal/tell"
	"github.com/tombolo-io/tombolo/internal/wire"
	pb "github.com/tombolo-io/tombolo/proto"
)

// session is one live agent. Its life:
//
//	TLS done --Hello--> checked --Welcome--> live --Drain--> draining --> ended
//	                       \--refusal--> ended          \--dead link, Goodbye, Close--> ended
type session struct {
	cluster  *cluster
	agent    id.Agent
	instance string // random for each start of the agent
	software string
	ranges   []string
	since    time.Time
	certEnd  time.Time
	peer     string
	link     carrier.Session
	beat     *heartbeat.Beat

	streams  atomic.Int64 // live streams and pending dials
	load     atomic.Int64 // streams that the agent reports over all of its sessions
	draining atomic.Bool
	ended    atomic.Pointer[fault.Fault] // why, set before the link is closed
	doubt    sync.Once
	up, down splice.Counter
}

func (s *session) status() admin.AgentStatus {
	return admin.AgentStatus{
		ID: s.agent.String(), Connected: true, Draining: s.draining.Load(), Since: s.since.UTC(),
		Peer: s.peer, Software: s.software, Carrier: "tls/" + string(s.link.Info().Kind),
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

// suspect keeps the pace of a live session from now on: if the link is dead, that
// is noticed within limit.DeadLive, and the next dials do not meet it again.
func (s *session) suspect() { s.doubt.Do(func() { s.beat.Busy(+1) }) }

// end tells the agent why and closes the session when it has read that, or after
// limit.Farewell; the first reason stands.
func (s *session) end(why *fault.Fault) {
	if s.ended.CompareAndSwap(nil, why) {
		s.beat.Send(goodbye(why))
		s.leave()
	}
}

func goodbye(why *fault.Fault) *pb.Control {
	return &pb.Control{Frame: &pb.Control_Goodbye{Goodbye: &pb.Goodbye{Reason: wire.ToFault(why)}}}
}

// leave lets the agent close first, because only that shows that it has read the farewell.
func (s *session) leave() {
	timer := time.NewTimer(limit.Farewell)
	defer timer.Stop()
	select {
	case <-s.link.Done():
	case <-timer.C:
	}
	s.link.Close()
}

// serveSession runs one agent's connection from its Hello to its end.
func (h *Hub) serveSession(ctx context.Context, conn *tls.Conn, known func()) {
	who, err := h.identify(conn, 0)
	if err == nil && who.Role != id.RoleAgent {
		err = fault.Newf(fault.CodeUnauthorized, "%s may not hold a session", who).Whyf("only agents may")
	}
	var c *cluster
	if err == nil {
		c, err = h.clusters.get(who.Cluster)
	}
	if err == nil {
		known()
	}
	stop := run.OnDone(ctx, func() { conn.Close() })
	hello, helloErr := h.exchangeHello(conn, err)
	stop()
	if err == nil {
		err = helloErr
	}
	if err != nil {
		h.refused(conn, err)
		conn.Close()
		return
	}
	agentName, err := id.ParseAgent(who.Name)
	if err != nil {
		h.refused(conn, err)
		conn.Close()
		return
	}
	link, err := carrier.Server(carrier.Yamux, conn, carrier.Options{Incoming: limit.AgentStreams})
	if err != nil {
		h.refused(conn, err)
		conn.Close()
		return
	}
	defer link.Close()
	s := &session{
		cluster: c, agent: agentName, instance: hello.GetInstance(), software: clip(hello.GetSoftware(), 64),
		ranges: clipAll(hello.GetRanges()), since: h.now(), peer: conn.RemoteAddr().String(),
		certEnd: conn.ConnectionState().PeerCertificates[0].NotAfter, link: link,
	}
	h.runSession(ctx, s)
}

// exchangeHello reads the agent's Hello and answers it; refusal, if not nil, is the answer.
func (h *Hub) exchangeHello(conn *tls.Conn, refusal error) (*pb.Hello, error) {
	conn.SetDeadline(time.Now().Add(limit.Hello))
	defer conn.SetDeadline(time.Time{})
	var m pb.Control
	if err := wire.Read(conn, limit.ControlFrame, &m); err != nil {
		return nil, err
	}
	hello := m.GetHello()
	welcome := &pb.Welcome{Software: h.cfg.Version, Hub: h.cfg.Name, UnixMillis: h.now().UnixMilli()}
	f := fault.From(refusal)
	if f == nil && (hello == nil || hello.GetInstance() == "" || len(hello.GetInstance()) > 64) {
		f = fault.New(fault.CodeFrameInvalid, "the first frame is no usable Hello")
	}
	if f == nil {
		welcome.Version, f = wire.Negotiate(hello.GetVersionMin(), hello.GetVersionMax())
	}
	if f == nil && h.draining.Load() {
		f = fault.New(fault.CodeDraining, "the hub is shutting down").Hint("the agent tries again by itself")
	}
	welcome.Refusal = wire.ToFault(f)
	if err := wire.Write(conn, &pb.Control{Frame: &pb.Control_Welcome{Welcome: welcome}}); err != nil {
		return nil, err
	}
	if f != nil {
		return nil, f
	}
	return hello, nil
}

// runSession takes the agent's control stream, makes the session available and
// keeps it until it ends.
func (h *Hub) runSession(ctx context.Context, s *session) {
	control, err := h.acceptControl(ctx, s.link)
	if err != nil {
		h.refused(s.link, err)
		return
	}
	s.beat = heartbeat.New(heartbeat.Options{
		Stream:       control,
		End:          func() { s.link.Close() },
		LastReceived: func() time.Time { return s.link.Traffic().LastReceived },
		OnFrame:      func(f *pb.Control) { h.onFrame(s, f) },
		OnRTT:        func(d time.Duration) { h.metrics.RTT.Observe(d.Seconds()) },
	})
	older, err := s.cluster.join(s)
	if err != nil {
		h.refused(s.link, err)
		control.SetWriteDeadline(time.Now().Add(limit.Farewell))
		if wire.Write(control, goodbye(fault.From(err))) == nil {
			s.leave()
		}
		return
	}
	for _, old := range older {
		old.suspect()
	}
	h.metrics.Sessions.Inc()
	log := h.log.With(tell.AttrCluster, s.cluster.name, tell.AttrAgent, s.agent, tell.AttrPeer, s.peer)
	log.Info("agent connected", "software", s.software, "ranges", s.ranges)

	stop := run.OnDone(ctx, func() { s.end(fault.New(fault.CodeDraining, "the hub stopped")) })
	err = s.beat.Run(context.WithoutCancel(ctx))
	stop()
	why := fault.From(err)
	if why == nil {
		why = fault.New(fault.CodeSessionLost, "the session ended")
	}
	s.ended.CompareAndSwap(nil, why)
	s.link.Close()
	why = s.ended.Load()
	s.cluster.leave(s, why, h.now())
	h.metrics.SessionEnds.WithLabelValues(tell.Outcome(why.Code)).Inc()
	log.Info("agent left", tell.AttrCode, why.Code, tell.AttrReason, why.Error())
}

// acceptControl waits for the first stream, which the agent opens for control.
func (h *Hub) acceptControl(ctx context.Context, link carrier.Session) (carrier.Stream, error) {
	ctx, cancel := context.WithTimeout(ctx, limit.Hello)
	defer cancel()
	stop := run.OnDone(ctx, func() { link.Close() })
	control, err := link.AcceptStream(ctx)
	stop()
	if err != nil {
		return nil, fault.New(fault.CodeSessionLost, "the agent opened no control stream").Because(err)
	}
	return control, nil
}

// onFrame handles what the agent says on the control stream. Frames that are
// not for a hub are ignored, as the protocol asks.
func (h *Hub) onFrame(s *session, f *pb.Control) {
	switch x := f.GetFrame().(type) {
	case *pb.Control_Load:
		s.load.Store(int64(x.Load.GetStreams()))
	case *pb.Control_Drain:
		s.draining.Store(true)
		h.log.Info("agent drains", tell.AttrCluster, s.cluster.name, tell.AttrAgent, s.agent)
	case *pb.Control_Goodbye:
		why := wire.FromFault(x.Goodbye.GetReason())
		if why == nil {
			why = fault.New(fault.CodeSessionLost, "the agent said goodbye")
		}
		s.ended.CompareAndSwap(nil, why)
		s.link.Close()
	}
}

func clip(s string, n int) string {
	return wire.Clean(s[:min(len(s), n)])
}

// clipAll bounds what an agent says of its ranges, in number and in bytes: it is
// kept for each session and shown to operators.
func clipAll(in []string) (out []string) {
	left := limit.RangesText
	for _, s := range in {
		s = clip(s, 300)
		if left -= len(s); left < 0 {
			return append(out, "...")
		}
		out = append(out, s)
	}
	return out
}
