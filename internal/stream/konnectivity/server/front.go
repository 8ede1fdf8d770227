// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"crypto/tls"
	"errors"
	"net"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/listener"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/stream/konnectivity"
	"github.com/tombolo-io/tombolo/internal/stream/konnectivity/dropin"
	"github.com/tombolo-io/tombolo/internal/stream/splice"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// serveFrontend serves kube-apiserver. Over TLS a caller is known, and counted, once the handshake is done:
//
//	accept ──► handshake, at most so many ──► gate: the caller's account ──► frontend
func (s *Server) serveFrontend(ctx context.Context, ln net.Listener) error {
	if s.Socket != "" {
		return s.serveCallers(ctx, ln)
	}
	protocol := "http/1.1"
	if s.Mode == ModeGRPC {
		protocol = "h2"
	}
	files := &dropin.Files{Cert: s.ServerCert, Key: s.ServerKey, CA: s.ServerCA, Edit: s.edit}
	secure, err := files.Server(protocol)
	if err != nil {
		return err
	}
	known := listener.NewHandoff(ln.Addr())
	g := run.NewGroup(ctx)
	g.Go("handshakes", func(ctx context.Context) error { return s.shakeHands(ctx, ln, secure, known.Hand) })
	err = s.serveCallers(g.Context(), known)
	g.Stop()
	return errors.Join(err, g.Wait())
}

// shakeHands does the TLS handshakes of a port, and passes on the connections whose caller is known. It owns ln. A
// connection gives its place back when it has been taken, so that the others wait in the kernel's queue.
func (s *Server) shakeHands(ctx context.Context, ln net.Listener, secure *tls.Config, pass func(net.Conn)) error {
	defer run.OnDone(ctx, func() { ln.Close() })()
	shed := func() { s.Log.Debug("a silent connection of --server-port was closed for a newer one") }
	unknown, g := listener.NewUnauthenticated(handshakes, shed), run.NewGroup(ctx)
	err := listener.Accept(ctx, ln, func(raw net.Conn) {
		pending := unknown.Add(ctx, raw)
		g.Do(func(ctx context.Context) {
			conn := tls.Server(splice.Below(raw), secure)
			stop := run.OnDone(ctx, func() { raw.Close() })
			within, cancel := context.WithTimeout(ctx, limit.Handshake)
			err := conn.HandshakeContext(within)
			cancel()
			stop()
			if err != nil {
				pending.Gone()
				raw.Close()
				s.Log.Debug("a caller is refused: the TLS handshake failed", telemetry.AttrPeer, raw.RemoteAddr().String(),
					telemetry.AttrReason, err)
				return
			}
			pass(conn)
			pending.Authenticated()
		})
	})
	g.Stop()
	return errors.Join(err, g.Wait())
}

// serveCallers serves connections whose callers are known; it owns ln.
func (s *Server) serveCallers(ctx context.Context, ln net.Listener) error {
	ln = s.gated(ln)
	if s.Mode == ModeGRPC {
		f := konnectivity.New(s.Log)
		f.Observe, f.Keepalive, f.Drains = observer{s}, s.FrontendKeepalive, s.draining
		return f.Serve(ctx, ln, s.dial)
	}
	c := &connect{dial: s.dial, splicer: splice.New(), log: s.Log, ctx: ctx,
		open: func(n int) {
			s.metrics.Connects.Add(float64(n))
			s.callers.Add(int64(n))
		}, wrote: observer{s}.Wrote}
	return c.serve(ln)
}

// callerName is the name of the caller at the other end of a connection; empty over a unix socket.
func callerName(conn net.Conn) string {
	var d wire.Dial
	konnectivity.CallerOf(conn).Name(&d)
	return d.Caller
}
