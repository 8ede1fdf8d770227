// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/audit"
	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/listener"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/hub/conns"
	"github.com/tombolo-io/tombolo/internal/stream/hub/credentials"
	"github.com/tombolo-io/tombolo/internal/stream/hub/frontend"
	"github.com/tombolo-io/tombolo/internal/stream/hub/quota"
	"github.com/tombolo-io/tombolo/internal/stream/hub/record"
	"github.com/tombolo-io/tombolo/internal/stream/splice"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// serveFront accepts on the main port. What a connection is for follows from
// ALPN, who it is from its certificate:
//
//	tombolo-session/1 + agent     a session
//	tombolo-join/1                enrolment and renewal over HTTP
//	tombolo-relay/1 + node        the relay of the cluster's mesh
//	http/1.1 or none + client     one HTTP CONNECT into its own cluster
//	http/1.1 or none + operator   the admin API
func (h *Hub) serveFront(ctx context.Context, ln net.Listener) error {
	stop := run.OnDone(ctx, func() { ln.Close() })
	defer stop()
	g := run.NewGroup(ctx)
	unknown := conns.NewUnauthenticated(limit.Strangers, func() { h.metrics.Refused.WithLabelValues(string(fault.CodeLimit)).Inc() })
	err := listener.Accept(ctx, ln, func(raw net.Conn) {
		stranger := unknown.Add(ctx, raw)
		g.Do(func(ctx context.Context) {
			conn, err := h.shake(ctx, raw)
			if err != nil {
				stranger.Gone()
				h.record.LogPeer(record.Party{}, raw, err)
				raw.Close()
				return
			}
			if next := h.route(ctx, conn, raw, stranger); next != nil {
				g.Do(next)
			}
		})
	})
	return errors.Join(err, g.Wait())
}

// shake makes TLS of an accepted connection, whatever it will turn out to be
// for. A session's mux looks for its own layer, which is the lowest.
func (h *Hub) shake(ctx context.Context, raw net.Conn) (*tls.Conn, error) {
	cfg, err := h.serving.Config(h.now())
	if err != nil {
		return nil, err
	}
	conn := tls.Server(splice.Below(carrier.Wrap(raw)), cfg)
	ctx, cancel := context.WithTimeout(ctx, limit.Handshake)
	defer cancel()
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, fault.New(fault.CodeCertInvalid, "the TLS handshake failed").Because(err)
	}
	return conn, nil
}

// route passes a connection to what it is for. It is a stranger until its peer has
// an identity, or is gone.
func (h *Hub) route(ctx context.Context, conn *tls.Conn, raw net.Conn, stranger *conns.Pending) (next func(context.Context)) {
	switch conn.ConnectionState().NegotiatedProtocol {
	case trust.ALPNSession:
		defer stranger.Gone()
		if err := carrier.MarkSession(raw); err != nil {
			h.log.Debug("socket option not set", telemetry.AttrReason, err)
		}
		return h.serveSession(ctx, conn, stranger.Authenticated)
	case trust.ALPNRelay:
		defer stranger.Gone()
		if err := carrier.MarkSession(raw); err != nil {
			h.log.Debug("socket option not set", telemetry.AttrReason, err)
		}
		return h.serveRelay(ctx, conn, stranger.Authenticated)
	case trust.ALPNJoin:
		h.joinHTTP.Hand(judgedConn{conn, stranger.Gone}) // a stranger until the end
	default:
		defer stranger.Gone()
		h.routeHTTP(ctx, conn, stranger.Authenticated)
	}
	return nil
}

func (h *Hub) routeHTTP(ctx context.Context, conn *tls.Conn, known func()) {
	who, err := h.identify(conn)
	if err == nil && who.Role != id.RoleOperator && who.Role != id.RoleClient {
		err = fault.Newf(fault.CodeUnauthorized, "%s may not use this port for HTTP", who).
			Hint("use a client certificate: tombolo egress-config CLUSTER --mode connect-tls")
	}
	if err != nil {
		if chain := conn.ConnectionState().PeerCertificates; len(chain) > 0 {
			h.record.RefusedPeer("connect-tls", chain, addrText(conn), err)
		}
		defer run.OnDone(ctx, func() { conn.Close() })()
		h.refuseHTTP(ctx, conn, err)
		return
	}
	known()
	serial := trust.Serial(conn.ConnectionState().PeerCertificates[0])
	asks := record.Party{Cluster: who.Cluster, Frontend: "connect-tls", Caller: who.URI(), Serial: serial, Source: addrText(conn)}
	most := limit.ClientConnections
	if who.Role == id.RoleOperator {
		most += limit.OperatorConnections
	}
	if !h.clients.Add(serial, conn, most) {
		f := fault.Newf(fault.CodeLimit, "%d connections of clients and operators are open on the main port", most)
		h.record.RefusedConnection(asks, conn, wire.Peer{}, f)
		answerAtOnce(conn, f)
		return
	}
	var caller *quota.Account
	if who.Role == id.RoleClient {
		caller = h.callerOf(asks)
		if f := caller.Connect(); f != nil {
			h.clients.Remove(serial, conn)
			h.record.RefusedConnection(asks, conn, wire.Peer{}, f)
			answerAtOnce(conn, f)
			return
		}
	}
	gone := sync.OnceFunc(func() {
		caller.Disconnect()
		h.clients.Remove(serial, conn)
	})
	leaf := conn.ConnectionState().PeerCertificates[0]
	if h.credentials.Revoked(serial) || h.credentials.Refusal(who, credentials.IssuedAt(leaf)) != nil { // since it was identified: the revocation did not see this connection
		gone()
		conn.Close()
		return
	}
	if who.Role == id.RoleOperator {
		h.apiHTTP.Hand(judgedConn{conn, gone})
		return
	}
	defer gone()
	h.serveConnect(ctx, conn, asks, h.dialer(asks))
}

// refuseHTTP waits for the request's head before it answers, because a client
// that is still sending takes an early answer for a broken connection.
func (h *Hub) refuseHTTP(ctx context.Context, conn *tls.Conn, err error) {
	h.metrics.Refused.WithLabelValues(outcome(fault.From(err))).Inc()
	if _, bad := h.readConnect(ctx, conn, splice.Net(conn)); bad != nil && !fault.Has(bad, fault.CodeMethod) {
		err = errors.Join(err, bad)
	}
	h.refuseConnect(conn, err)
}

// identify says who is at the other end of a finished handshake.
func (h *Hub) identify(conn *tls.Conn) (id.Identity, error) {
	return h.credentials.Verify(conn.ConnectionState().PeerCertificates, 0)
}

// dialer binds a frontend's dials to one cluster and one caller, and counts them.
func (h *Hub) dialer(who record.Party) frontend.DialFunc {
	source := who.Address()
	return func(ctx context.Context, d wire.Dial) (carrier.Stream, error) {
		start := time.Now()
		d.Caller, d.Source = who.Caller, source
		ctx, span := h.beginTrace(ctx, who.Cluster, who.Frontend, &d)
		stream, told, err := h.dialRecorded(ctx, who, d)
		endSpan(span, err)
		h.metrics.DialDuration.WithLabelValues(who.Frontend).Observe(time.Since(start).Seconds())
		f := fault.From(err)
		h.metrics.Dials.WithLabelValues(who.Frontend, outcome(f)).Inc()
		if f != nil {
			level := slog.LevelWarn
			if !told {
				level = slog.LevelDebug
			}
			h.log.Log(ctx, level, "dial failed", telemetry.AttrCluster, who.Cluster, telemetry.AttrTarget, wire.Clean(audit.Destination(d.Address)), telemetry.AttrCaller, who.Caller,
				telemetry.AttrCode, f.Code, telemetry.AttrReason, f.Error())
			return nil, err
		}
		h.log.Debug("dialled", telemetry.AttrCluster, who.Cluster, telemetry.AttrTarget, d.Address, telemetry.AttrCaller, who.Caller)
		return stream, nil
	}
}

// dialRecorded dials, and leaves a record of the refusal, of the failure, or of the stream
// when it has ended. told says of an error whether the log should have it too: of a flood of
// refusals it has the sum alone.
func (h *Hub) dialRecorded(ctx context.Context, who record.Party, d wire.Dial) (_ carrier.Stream, told bool, err error) {
	begun := time.Now()
	var rec *record.Dial
	var at *record.Progress
	if h.record.On() {
		rec = h.record.Dial(who, d, begun)
		at = rec.Progress()
		err = h.record.Admit()
	}
	var stream *hubStream
	if err == nil {
		stream, err = h.dial(ctx, who.Cluster, d, at)
	}
	switch {
	case err != nil:
		if rec == nil {
			rec = h.record.Dial(who, d, begun)
		}
		return nil, h.record.Failed(rec, err), err
	case rec == nil:
		return stream, false, nil
	}
	return rec.Opened(stream), false, nil
}

func outcome(f *fault.Fault) string {
	if f == nil {
		return telemetry.Outcome("")
	}
	return telemetry.Outcome(f.Code)
}

// judgedConn is a connection whose ALPN has been judged already: net/http, which
// knows TLS by its type, does not judge it again. gone is called when it is closed.
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

// withPeer makes known to handlers who is at the other end: the certificates of a
// handed-over connection, the process of one to the admin socket.
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
