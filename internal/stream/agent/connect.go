// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/enrol"
	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/heartbeat"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
	pb "github.com/tombolo-io/tombolo/proto"
)

// connect dials one hub address, proves who we are, exchanges Hello and begins a session.
func (a *Agent) connect(ctx context.Context, hub string, me *enrol.Identity) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, limit.Handshake+limit.Hello)
	defer cancel()
	conn, welcome, err := a.greeted(ctx, hub, trust.ServerName(hub), me, nil)
	if err != nil {
		return nil, err
	}
	s := &session{hub: hub, emptied: make(chan struct{}, 1)}
	s.load.tell = func(streams int64) {
		s.beat.Send(&pb.Control{Frame: &pb.Control_Load{Load: &pb.Load{Streams: uint32(max(streams, 0))}}})
	}
	link, err := a.begin(conn, welcome, s)
	if err != nil {
		conn.Close()
		return nil, enrol.HubFault(hub, err)
	}
	control, err := link.OpenStream(ctx, nil)
	if err != nil {
		link.Close()
		return nil, enrol.HubFault(hub, err)
	}
	s.link = link
	s.beat = heartbeat.New(heartbeat.Options{
		Stream:       control,
		Next:         func(ctx context.Context) (heartbeat.Stream, error) { return link.OpenStream(ctx, nil) },
		Done:         link.Done(),
		End:          func() { link.Close() },
		LastReceived: func() time.Time { return link.Traffic().LastReceived },
		OnFrame:      func(f *pb.Control) { a.onFrame(s, f) },
		OnRTT: func(d time.Duration) {
			s.accepted.Store(true)
			a.metrics.RTT.Observe(d.Seconds())
		},
	})
	return s, nil
}

// begin puts the mux on a connection as Welcome says.
func (a *Agent) begin(conn *tls.Conn, w *pb.Welcome, s *session) (carrier.Session, error) {
	set := a.settings.Load()
	if f := wire.CheckTaken(w.GetCapabilities()); f != nil {
		return nil, f
	}
	hub, name := conn.RemoteAddr().String(), conn.ConnectionState().ServerName
	o := carrier.Options{
		Incoming: limit.StreamsPerSession, Connections: allowed(set.Connections, w.GetConnections()), Budget: a.unread,
		Lost: func(l carrier.Loss) { a.lost(s, hub, l) },
	}
	if secret := w.GetSecret(); o.Connections > 1 && len(secret) > 0 {
		// The very hub that holds the session: another one behind the same name
		// does not know the secret.
		o.Dial = func(ctx context.Context) (net.Conn, error) { return a.attach(ctx, s, hub, name, secret) }
	}
	return carrier.Client(conn, o)
}

// allowed is how many connections a session may have by our configuration and by
// what the hub says; nothing counts as one.
func allowed(configured int, welcome uint32) int {
	return max(1, min(configured, int(min(welcome, limit.Connections))))
}

// attach opens one more connection for the session that has the secret, with the
// current certificate: the one that the session started with may have been renewed.
func (a *Agent) attach(ctx context.Context, s *session, hub, name string, secret []byte) (net.Conn, error) {
	conn, welcome, err := a.greeted(ctx, hub, name, a.identity(), secret)
	if err == nil {
		if f := wire.CheckTaken(welcome.GetCapabilities()); f != nil {
			conn.Close() // a hub that knows no attach has taken it for a new session
			err = f
		}
	}
	f := fault.From(err)
	a.metrics.Attaches.WithLabelValues(outcome(f)).Inc()
	if f != nil {
		a.log.Debug("no further connection", "hub", hub, telemetry.AttrCode, f.Code, telemetry.AttrReason, f.Explain())
		return nil, err
	}
	say := a.log.Debug
	if s.missing.Swap(0) > 0 {
		say = a.log.Info // those who saw the loss want to see its repair
	}
	say("further connection", "hub", hub)
	return conn, nil
}

// lost says that a session has lost a connection. One that was not needed any
// more is no news.
func (a *Agent) lost(s *session, hub string, l carrier.Loss) {
	say := a.log.Debug
	if l.Cause != carrier.CauseLeft {
		say = a.log.Warn
		s.missing.Add(1)
	}
	say("connection lost", "hub", hub, telemetry.AttrCause, l.Cause, telemetry.AttrReason, l.Why.Error(),
		"remain", l.Remain)
	a.metrics.Losses.WithLabelValues(string(l.Cause)).Inc() // when all else is known
}

// greeted dials, shakes hands and exchanges Hello and Welcome; with a secret the
// connection is to join the session that has it. name is that of the hub, if it has one.
func (a *Agent) greeted(ctx context.Context, hub, name string, me *enrol.Identity,
	secret []byte) (*tls.Conn, *pb.Welcome, error) {
	raw, err := carrier.Dialer().DialContext(ctx, "tcp", hub)
	if err != nil {
		return nil, nil, enrol.HubFault(hub, err)
	}
	cfg := trust.HubClientConfig(me.Check(a.now), me.TLS(), trust.ALPNSession)
	cfg.ServerName, cfg.ClientSessionCache = name, me.Tickets
	conn := tls.Client(carrier.Wrap(raw), cfg)
	stop := run.OnDone(ctx, func() { raw.Close() })
	defer stop()
	welcome, err := a.greet(ctx, conn, secret)
	if err != nil {
		raw.Close()
		return nil, nil, enrol.HubFault(hub, err)
	}
	return conn, welcome, nil
}

// greet sends Hello and reads Welcome on the bare connection.
func (a *Agent) greet(ctx context.Context, conn *tls.Conn, secret []byte) (*pb.Welcome, error) {
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	if p := conn.ConnectionState().NegotiatedProtocol; p != trust.ALPNSession {
		return nil, fault.New(fault.CodeVersion, "the hub does not speak our session protocol").Whyf("it chose %q", p)
	}
	set := a.settings.Load()
	hello := &pb.Hello{
		VersionMin: wire.Version, VersionMax: wire.Version, Software: "tombolo " + a.cfg.Version,
		Instance: a.instance, UnixMillis: a.now().UnixMilli(), Attach: secret,
	}
	if secret == nil {
		hello.Capabilities, hello.Ranges = wire.Offer(), set.Policy.Texts()
	} else {
		hello.Capabilities = []string{wire.CapabilityMux} // as the session has it
	}
	if err := wire.Write(conn, &pb.Control{Frame: &pb.Control_Hello{Hello: hello}}); err != nil {
		return nil, err
	}
	var m pb.Control
	if err := wire.Read(conn, limit.ControlFrame, &m); err != nil {
		return nil, err
	}
	welcome := m.GetWelcome()
	if welcome == nil {
		return nil, fault.New(fault.CodeFrameInvalid, "the hub's first frame is no Welcome")
	}
	if f := wire.FromFault(welcome.GetRefusal()); f != nil {
		return nil, f
	}
	if welcome.GetVersion() != wire.Version {
		return nil, fault.Newf(fault.CodeVersion, "the hub chose version %d of the session protocol", welcome.GetVersion())
	}
	if skew := time.UnixMilli(welcome.GetUnixMillis()).Sub(a.now()); skew.Abs() > limit.ClockTolerance {
		a.log.Warn("this machine's clock differs from the hub's", "by", skew.Round(time.Second))
	}
	return welcome, nil
}
