// SPDX-License-Identifier: Apache-2.0

package vpn

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/listener"
	"github.com/tombolo-io/tombolo/internal/base/private"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/base/untrusted"
	"github.com/tombolo-io/tombolo/internal/stream/splice"
)

// connect serves HTTP CONNECT into the cluster (RFC 9110 section 9.3.6), to whom its certificate lets: flow B of
// GEP-14. The names and addresses that are asked for are the cluster's own ones.
type connect struct {
	*Server
	cfg     *connectConfig // nil: it serves nobody
	tls     *tls.Config
	ln      net.Listener
	splicer *splice.Splicer
	places  *run.Limiter
	live    *run.Group
	lookup  func(ctx context.Context, host string) ([]netip.Addr, error)
}

func (s *Server) newConnect() (*connect, error) {
	c := &connect{Server: s, cfg: s.cfg.Connect, splicer: splice.New(),
		lookup: func(ctx context.Context, host string) ([]netip.Addr, error) {
			return (&net.Resolver{}).LookupNetIP(ctx, "ip", host)
		}}
	if c.cfg == nil {
		return c, nil
	}
	c.places = run.NewLimiter(c.cfg.Connections)
	own, err := c.certificate()
	if err != nil {
		return nil, err
	}
	base := &tls.Config{MinVersion: tls.VersionTLS12, ClientAuth: tls.RequireAndVerifyClientCert,
		NextProtos: []string{"http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			if now, err := c.certificate(); err == nil {
				return now, nil
			}
			return own, nil // while it is being replaced
		}}
	if c.cfg.ClientCA == "" {
		base.VerifyConnection = c.known
	}
	if _, err := c.roots(); err != nil {
		return nil, err
	}
	c.tls = &tls.Config{MinVersion: base.MinVersion, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		roots, err := c.roots() // as they are now: a CA is replaced because it is trusted no more
		if err != nil {
			return nil, err
		}
		now := base.Clone()
		now.ClientCAs = roots
		return now, nil
	}}
	return c, nil
}

// roots are those that have made the certificates of callers.
func (c *connect) roots() (*x509.CertPool, error) {
	if c.cfg.ClientCA == "" {
		c.mu.Lock()
		defer c.mu.Unlock()
		return trust.RootsOf(c.who.ca), nil
	}
	data, err := private.ReadPublic(c.cfg.ClientCA, limit.PrivateFile)
	if err != nil {
		return nil, fault.New(fault.CodeConfig, "connect.clientCA cannot be read").Because(err).
			Hint("correct connect in the configuration")
	}
	roots, err := trust.ParseCertificates(data)
	if err != nil {
		return nil, err
	}
	return trust.RootsOf(roots...), nil
}

// certificate is that of the listener.
func (c *connect) certificate() (*tls.Certificate, error) {
	if c.cfg.Certificate == "" {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.who.leaf, nil
	}
	cert, err := private.Pair(c.cfg.Certificate, c.cfg.Key)
	return &cert, err
}

// known lets in the clients of this cluster, of all that the CA has made certificates for.
func (c *connect) known(state tls.ConnectionState) error {
	who, ok := named(state.PeerCertificates[0])
	if !ok || who.Role != id.RoleClient || who.Cluster.String() != c.Server.cfg.Cluster {
		return fmt.Errorf("%s is no client of cluster %s", who, c.Server.cfg.Cluster)
	}
	return nil
}

// listen opens the port. live is what connections belong to from here on: a drain may begin before serve does.
func (c *connect) listen(ctx, live context.Context) (err error) {
	if c.cfg == nil {
		return nil
	}
	c.live = run.NewGroup(live)
	c.ln, err = listener.Listen(ctx, "connect.listen", c.cfg.Listen)
	return err
}

func (c *connect) close() { _ = listener.Close(c.ln) }

// serve accepts until ctx ends.
func (c *connect) serve(ctx context.Context) error {
	if c.cfg == nil {
		<-ctx.Done()
		return nil
	}
	callers := listener.NewHandoff(c.ln.Addr())
	unknown := listener.NewUnauthenticated(limit.Unauthenticated, func() {})
	g := run.NewGroup(ctx)
	g.Go("HTTP", func(ctx context.Context) error {
		srv := listener.HTTP{Handler: http.HandlerFunc(c.handle), Header: limit.RequestHeader, Log: c.log}
		return srv.Serve(ctx, callers)
	})
	stop := run.OnDone(ctx, func() { c.ln.Close() })
	defer stop()
	err := listener.Accept(ctx, c.ln, func(conn net.Conn) {
		g.Do(func(ctx context.Context) {
			pending := unknown.Add(ctx, conn)
			defer pending.Gone()
			shaking, cancel := context.WithTimeout(ctx, limit.Handshake)
			defer cancel()
			secure := tls.Server(conn, c.tls)
			if err := secure.HandshakeContext(shaking); err != nil {
				c.log.Debug("a caller of CONNECT is not known", telemetry.AttrPeer, conn.RemoteAddr(),
					telemetry.AttrReason, untrusted.Text(err.Error(), reason))
				conn.Close()
				return
			}
			pending.Authenticated()
			callers.Hand(secure)
		})
	})
	return errors.Join(err, g.Wait(), c.live.Wait())
}

// drain lets nobody in any more, and waits a moment for those that are in.
func (c *connect) drain(hard context.Context) {
	if c.cfg == nil {
		return
	}
	bound, stop := context.WithTimeout(hard, limit.Drain)
	defer stop()
	c.live.WaitContext(bound)
}

// handle dials what one request asks for, and copies.
func (c *connect) handle(w http.ResponseWriter, r *http.Request) {
	f := c.serveOne(w, r)
	code := fault.Code("")
	if f != nil {
		code = f.Code
		c.log.Warn("a CONNECT was refused", telemetry.AttrCode, f.Code, telemetry.AttrReason, f.Error(),
			telemetry.AttrPeer, r.RemoteAddr)
		refuse(w, f)
	}
	c.metrics.Connects.WithLabelValues(telemetry.Outcome(code)).Inc()
}

func (c *connect) serveOne(w http.ResponseWriter, r *http.Request) *fault.Fault {
	if r.Method != http.MethodConnect {
		return fault.Newf(fault.CodeMethod, "only CONNECT is served here")
	}
	if c.draining.Load() {
		return fault.New(fault.CodeDraining, "the VPN is shutting down")
	}
	if !c.places.TryAcquire() {
		return fault.Newf(fault.CodeLimit, "%d connections are open", c.cfg.Connections).Hint("raise connect.connections")
	}
	defer c.places.Release()
	far, f := c.dial(r.Context(), r.Host)
	if f != nil {
		return f
	}
	near, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		far.Close()
		return fault.New(fault.CodeInternal, "the connection cannot be taken over").Because(err)
	}
	if buffered.Reader.Buffered() > 0 {
		far.Close()
		near.Close()
		return nil // bytes before the answer could be a smuggled request: nobody waits for another one
	}
	near.SetDeadline(time.Now().Add(limit.ReplyWrite))
	if _, err := near.Write([]byte("HTTP/1.1 200 Connection Established\r\n\r\n")); err != nil {
		far.Close()
		near.Close()
		return nil
	}
	near.SetDeadline(time.Time{})
	c.open.Add(1)
	defer c.open.Add(-1)
	ctx, done := c.live.Begin()
	defer done()
	c.splicer.Both(ctx, splice.Net(near), splice.Net(far), splice.Options{})
	return nil
}

// dial connects to a target in the cluster's ranges, by the address by which it is reached here.
func (c *connect) dial(ctx context.Context, text string) (net.Conn, *fault.Fault) {
	target, err := policy.ParseTarget(text)
	if err != nil {
		return nil, fault.New(fault.CodeRequest, "the target of a CONNECT").Because(err)
	}
	ctx, cancel := context.WithTimeout(ctx, limit.DialTarget)
	defer cancel()
	addrs := []netip.Addr{target.Addr}
	if target.Name != "" {
		if addrs, err = c.lookup(ctx, target.Name); err != nil {
			return nil, fault.Newf(fault.CodeDialDNS, "%s cannot be resolved", target.Name).Because(err)
		}
	}
	denied := fault.Newf(fault.CodePolicyDenied, "%s is in no range of the cluster", target).
		Hint("add its range to ranges in the configuration of both ends")
	last := denied
	for _, a := range addrs[:min(len(addrs), limit.ResolvedAddresses)] {
		here, ok := c.Server.cfg.Routed.Here(c.Server.cfg.Cluster, a)
		if !ok {
			continue
		}
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", netip.AddrPortFrom(here, target.Port).String())
		if err == nil {
			return conn, nil
		}
		last = unreached(ctx, target.String(), err)
	}
	return nil, last
}

func unreached(ctx context.Context, target string, err error) *fault.Fault {
	code := fault.CodeDialUnreachable
	switch {
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ECONNRESET):
		code = fault.CodeDialRefused
	case run.Ended(ctx) != nil, errors.Is(err, syscall.ETIMEDOUT):
		code = fault.CodeDialTimeout
	}
	return fault.Newf(code, "%s cannot be reached through the tunnel", target).Because(err)
}

// refuse answers with a status and the code.
func refuse(w http.ResponseWriter, f *fault.Fault) {
	status := http.StatusBadGateway
	switch fault.ClassOf(f.Code) {
	case fault.Invalid:
		status = http.StatusBadRequest
	case fault.Denied:
		status = http.StatusForbidden
	case fault.Exhausted:
		status = http.StatusTooManyRequests
	case fault.Timeout:
		status = http.StatusGatewayTimeout
	case fault.Unavailable:
		status = http.StatusServiceUnavailable
	}
	w.Header().Set("Tombolo-Fault", string(f.Code))
	w.Header().Set("Connection", "close")
	http.Error(w, fmt.Sprintf("%s: %s", f.Code, f.What), status)
}
