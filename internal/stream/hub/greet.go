// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"slices"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/stream/hub/conns"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
	pb "github.com/tombolo-io/tombolo/proto"
)

// arrival is a connection of an identified agent.
type arrival struct {
	conn    *tls.Conn
	who     id.Identity
	agent   id.Agent
	cluster *cluster
	known   func() // frees its slot among the unauthenticated connections, once the peer has sent Hello
}

// admit checks the certificate of a session's connection. It does so for every
// connection: a resumed handshake presents the certificate of the original one.
func (ag *agents) admit(conn *tls.Conn) (a arrival, err error) {
	a.conn = conn
	who, err := ag.identify(conn)
	if err != nil {
		return a, err
	}
	if who.Role != id.RoleAgent {
		return a, fault.Newf(fault.CodeUnauthorized, "%s may not hold a session", who).Whyf("only agents may")
	}
	a.who = who
	if a.agent, err = id.ParseAgent(who.Name); err != nil {
		return a, err
	}
	a.cluster, err = ag.clusters.get(who.Cluster)
	return a, err
}

// leaf is the certificate that the agent has presented; an admitted agent has one.
func (a arrival) leaf() *x509.Certificate { return a.conn.ConnectionState().PeerCertificates[0] }

// agreement is the result of Hello and Welcome.
type agreement struct {
	hello       *pb.Hello
	secret      []byte   // ties further connections to the session; nil: there are none
	connections int      // at most
	chooses     bool     // the hub may choose among the addresses of a name
	joins       *session // the session that this connection is added to; nil: it starts one
}

// greet reads Hello and answers it, with refusal if that is not nil. The caller has to
// release the slot of a session that the connection joins.
func (ag *agents) greet(ctx context.Context, a arrival, refusal error) (agreement, error) {
	defer run.OnDone(ctx, func() { a.conn.Close() })()
	a.conn.SetDeadline(time.Now().Add(limit.Hello))
	defer a.conn.SetDeadline(time.Time{})
	var m pb.Control
	if err := wire.Read(a.conn, limit.ControlFrame, &m); err != nil {
		if refusal != nil {
			err = refusal
		}
		return agreement{}, err
	}
	if refusal == nil && a.known != nil {
		a.known()
	}
	g, welcome := agreement{hello: m.GetHello()}, &pb.Welcome{}
	f := fault.From(refusal)
	if f == nil {
		f = ag.agree(a, &g, welcome)
	}
	if f != nil {
		welcome = &pb.Welcome{Refusal: wire.ToFault(f)}
	}
	welcome.Software, welcome.Hub, welcome.UnixMillis = ag.cfg.Version, ag.cfg.Name, ag.now().UnixMilli()
	err := wire.Write(a.conn, &pb.Control{Frame: &pb.Control_Welcome{Welcome: welcome}})
	if f != nil {
		return agreement{}, f
	}
	if err != nil && g.joins != nil {
		g.joins.release()
	}
	return g, err
}

// agree decides about the Hello of an admitted agent.
func (ag *agents) agree(a arrival, g *agreement, welcome *pb.Welcome) (f *fault.Fault) {
	if g.hello.GetInstance() == "" || len(g.hello.GetInstance()) > 64 {
		return fault.New(fault.CodeFrameInvalid, "the first frame is no usable Hello")
	}
	if welcome.Version, f = wire.Negotiate(g.hello.GetVersionMin(), g.hello.GetVersionMax()); f != nil {
		return f
	}
	if ag.draining.Load() {
		return fault.New(fault.CodeDraining, "the hub is shutting down").Hint("the agent tries again by itself")
	}
	set := ag.settings.Load()
	if welcome.Capabilities, f = wire.Choose(g.hello.GetCapabilities()); f != nil {
		return f
	}
	g.chooses = slices.Contains(welcome.Capabilities, wire.CapabilityChoice)
	g.connections = ag.connections(set)
	if attach := g.hello.GetAttach(); len(attach) > 0 {
		if g.joins, f = a.cluster.attaching(a.agent, attach, g.connections); f != nil {
			ag.metrics.Attaches.WithLabelValues(outcome(f)).Inc()
		}
		return f
	}
	if g.connections > 1 {
		g.secret = make([]byte, limit.SessionSecret)
		rand.Read(g.secret)
		welcome.Secret, welcome.Connections = g.secret, uint32(g.connections)
	}
	return nil
}

// connections returns how many connections a session may have now.
func (ag *agents) connections(set *Reloadable) int {
	used, most := ag.descriptors.Used(time.Now())
	return conns.PerSession(conns.Means{
		Configured: set.connections, Cores: ag.cores, Used: used, Most: most,
	})
}
