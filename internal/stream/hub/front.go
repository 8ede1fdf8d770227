// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"slices"
	"sync"

	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/listener"
	"github.com/tombolo-io/tombolo/internal/base/proxyheader"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/hub/credentials"
	"github.com/tombolo-io/tombolo/internal/stream/hub/quota"
	"github.com/tombolo-io/tombolo/internal/stream/hub/record"
	"github.com/tombolo-io/tombolo/internal/stream/splice"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// front serves the main port and the unix sockets: it hands each connection to the server that handles it.
type front struct {
	*parts
	dials     *dialer
	agents    *agents
	relays    *relays
	connect   *connect
	frontends map[string]Frontend // of other packages, by protocol

	// Set by Run before anything is served.
	serving           *credentials.ServerCertificate
	joinHTTP, apiHTTP *listener.Handoff
}

// serveFront accepts on the main port. The purpose of a connection follows
// from ALPN, its peer from the certificate:
//
//	tombolo-session/1 + agent     a session
//	tombolo-join/1                enrolment and renewal over HTTP
//	tombolo-relay/1 + node        the relay of the cluster's mesh
//	http/1.1 or none + client     one HTTP CONNECT into its own cluster; with role route too
//	http/1.1 or none + agent      one HTTP CONNECT to a port of the hub, if its cluster has any
//	http/1.1 or none + operator   the admin API
//	http/1.1 or none + edge       streams into clusters, and their names
func (fr *front) serveFront(ctx context.Context, ln net.Listener) error {
	stop := run.OnDone(ctx, func() { ln.Close() })
	defer stop()
	g := run.NewGroup(ctx)
	unknown := listener.NewUnauthenticated(limit.Unauthenticated,
		func() { fr.metrics.Refused.WithLabelValues(string(fault.CodeLimit)).Inc() })
	err := listener.Accept(ctx, ln, func(raw net.Conn) {
		pending := unknown.Add(ctx, raw)
		g.Do(func(ctx context.Context) {
			told, conn, err := fr.shake(ctx, raw)
			if err != nil {
				pending.Gone()
				fr.record.LogPeer(record.Party{}, told, err)
				raw.Close()
				return
			}
			if next := fr.route(ctx, conn, told, pending); next != nil {
				g.Do(next)
			}
		})
	})
	return errors.Join(err, g.Wait())
}

// shake does the TLS handshake of an accepted connection, whatever its purpose. The mux
// of a session needs the socket below TLS, so it is wrapped first. told is raw with the
// address of the client, which a load balancer may tell.
func (fr *front) shake(ctx context.Context, raw net.Conn) (told net.Conn, conn *tls.Conn, err error) {
	cfg, err := fr.serving.Config(fr.now())
	if err != nil {
		return raw, nil, err
	}
	defer run.OnDone(ctx, func() { raw.Close() })()
	if told, err = listener.Proxied(raw, fr.cfg.Trusted, limit.Handshake); err != nil {
		return raw, nil, err
	}
	conn = tls.Server(splice.Below(carrier.Wrap(told)), cfg)
	ctx, cancel := context.WithTimeout(ctx, limit.Handshake)
	defer cancel()
	err = conn.HandshakeContext(ctx)
	var notTLS tls.RecordHeaderError
	switch {
	case errors.As(err, &notTLS) && proxyheader.Begins(notTLS.RecordHeader[:]):
		return told, nil, proxyheader.Refuse("it comes from an address that is no load balancer, or comes twice")
	case err != nil:
		return told, nil, fault.New(fault.CodeCertInvalid, "the TLS handshake failed").Because(err)
	}
	return told, conn, nil
}

// route passes a connection to the server that handles it. The connection is pending
// until its peer is identified or gone.
func (fr *front) route(ctx context.Context, conn *tls.Conn, raw net.Conn,
	pending *listener.Pending) (next func(context.Context)) {
	switch conn.ConnectionState().NegotiatedProtocol {
	case trust.ALPNSession:
		defer pending.Gone()
		if err := carrier.MarkSession(raw); err != nil {
			fr.log.Debug("socket option not set", telemetry.AttrReason, err)
		}
		return fr.agents.serveSession(ctx, conn, pending.Authenticated)
	case trust.ALPNRelay:
		defer pending.Gone()
		if err := carrier.MarkSession(raw); err != nil {
			fr.log.Debug("socket option not set", telemetry.AttrReason, err)
		}
		return fr.relays.serveRelay(ctx, conn, pending.Authenticated)
	case trust.ALPNJoin:
		fr.joinHTTP.Hand(judgedConn{conn, pending.Gone}) // until the end
	default:
		defer pending.Gone()
		fr.routeHTTP(ctx, conn, pending.Authenticated)
	}
	return nil
}

func (fr *front) routeHTTP(ctx context.Context, conn *tls.Conn, known func()) {
	who, err := fr.identify(conn)
	connects := err == nil && fr.connects(who)
	if err == nil && !connects && !slices.Contains([]id.Role{id.RoleOperator, id.RoleEdge, id.RoleEndpoint}, who.Role) {
		err = notForHTTP(who)
	}
	if err != nil {
		if chain := conn.ConnectionState().PeerCertificates; len(chain) > 0 {
			fr.record.RefusedPeer("connect-tls", chain, addrText(conn), err)
		}
		defer run.OnDone(ctx, func() { conn.Close() })()
		fr.refuseHTTP(ctx, conn, err)
		return
	}
	known()
	serial := trust.Serial(conn.ConnectionState().PeerCertificates[0])
	holder := serial // by which a revocation finds the connection
	if who.Role == id.RoleAgent {
		holder = who.URI()
	}
	asks := record.Party{Cluster: who.Cluster, Frontend: frontendOf(who.Role), Caller: who.URI(), Serial: serial,
		Source: addrText(conn)}
	most := clientConnections
	if who.Role == id.RoleOperator {
		most += operatorConnections
	}
	if !fr.clients.Add(holder, conn, most) {
		f := fault.Newf(fault.CodeLimit, "%d connections of clients, edges and operators are open on the main port", most)
		fr.record.RefusedConnection(asks, conn, wire.Peer{}, f)
		answerAtOnce(conn, f)
		return
	}
	var caller *quota.Account
	if connects {
		caller = fr.clusters.callerOf(asks)
		if f := caller.Connect(); f != nil {
			fr.clients.Remove(holder, conn)
			fr.record.RefusedConnection(asks, conn, wire.Peer{}, f)
			answerAtOnce(conn, f)
			return
		}
	}
	gone := sync.OnceFunc(func() {
		caller.Disconnect()
		fr.clients.Remove(holder, conn)
	})
	leaf := conn.ConnectionState().PeerCertificates[0]
	// Revoked after it was identified: the revocation did not see this connection.
	if fr.credentials.Revoked(serial) || fr.credentials.Refusal(who, credentials.IssuedAt(leaf)) != nil {
		gone()
		conn.Close()
		return
	}
	if !connects {
		fr.apiHTTP.Hand(judgedConn{conn, gone})
		return
	}
	defer gone()
	fr.connect.serveConnect(ctx, conn, asks, fr.dials.forCaller(asks))
}

// frontendTLS is the frontend of clients.
const frontendTLS = "connect-tls"

// frontendOf is what records call the frontend of a role. It follows from the certificate: nobody chooses it.
func frontendOf(r id.Role) string {
	switch r {
	case id.RoleRoute:
		return policy.FlowRoute
	case id.RoleAgent:
		return policy.FlowBack
	}
	return frontendTLS
}

// connects reports whether who may come with a CONNECT. An agent may only where there is a port for it.
func (fr *front) connects(who id.Identity) bool {
	return who.Role.Dials() ||
		who.Role == id.RoleAgent && len(fr.settings.Load().ports.of(who.Cluster.String())) > 0
}

func notForHTTP(who id.Identity) error {
	f := fault.Newf(fault.CodeUnauthorized, "%s may not use this port for HTTP", who)
	if who.Role == id.RoleAgent {
		return f.Whyf("this hub has no port for its cluster").
			Hint("name one under 'ports' in the hub's configuration, with this cluster")
	}
	return f.Hint("use a client certificate: tombolo egress-config CLUSTER --mode connect-tls")
}

// refuseHTTP waits for the request's header before it answers, because a client
// that is still sending treats an early answer as a broken connection.
func (fr *front) refuseHTTP(ctx context.Context, conn *tls.Conn, err error) {
	fr.metrics.Refused.WithLabelValues(outcome(fault.From(err))).Inc()
	if _, bad := fr.connect.readConnect(ctx, conn, splice.Net(conn)); bad != nil && !fault.Has(bad, fault.CodeMethod) {
		err = errors.Join(err, bad)
	}
	fr.connect.refuseConnect(conn, err)
}

// identify returns the identity of the peer of a finished handshake.
func (p *parts) identify(conn *tls.Conn) (id.Identity, error) {
	return p.credentials.Verify(conn.ConnectionState().PeerCertificates, 0)
}

func outcome(f *fault.Fault) string {
	if f == nil {
		return telemetry.Outcome("")
	}
	return telemetry.Outcome(f.Code)
}

// judgedConn hides that a connection is TLS from net/http, so that net/http does not check
// its ALPN again. gone is called when it is closed.
type judgedConn struct {
	*tls.Conn
	gone func()
}

func (c judgedConn) Close() error {
	defer c.gone()
	return c.Conn.Close()
}

type (
	peerKey       struct{}
	socketPeerKey struct{}
)

// withPeer gives handlers the identity of the peer: the certificates of a handed-over
// connection, or the process at the other end of the admin socket.
func withPeer(ctx context.Context, c net.Conn) context.Context {
	if j, ok := c.(judgedConn); ok {
		return context.WithValue(ctx, peerKey{}, j.ConnectionState().PeerCertificates)
	}
	if c, ok := c.(*net.UnixConn); ok {
		return context.WithValue(ctx, socketPeerKey{}, carrier.UnixPeer(c))
	}
	return listener.WithFew(ctx, c)
}

func peerOf(ctx context.Context) []*x509.Certificate {
	chain, _ := ctx.Value(peerKey{}).([]*x509.Certificate)
	return chain
}

// proven is the party that a peer's certificate proves, if the hub has issued it.
func (p *parts) proven(conn *tls.Conn) record.Party {
	who, ours := p.credentials.Authentic(conn.ConnectionState().PeerCertificates)
	if !ours {
		return record.Party{}
	}
	return record.Party{Cluster: who.Cluster, Caller: who.URI()}
}
