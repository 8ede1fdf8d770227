// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/listener"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/stunserver"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/stream/hub/credentials"
	"github.com/tombolo-io/tombolo/internal/stream/hub/frontend"
	pb "github.com/tombolo-io/tombolo/proto"
)

// listeners are opened before anything is served, so that a start either
// succeeds as a whole or leaves nothing behind.
type listeners struct{ front, admin, socket net.Listener }

// Run serves until ctx ends; then it drains: it takes no new streams and gives
// the live ones the drain timeout, which a second end (hard) cuts short.
func (h *Hub) Run(ctx, hard context.Context) error {
	defer h.state.Close()
	ls, err := h.openListeners(ctx)
	if err != nil {
		return err
	}
	_, at, err := net.SplitHostPort(ls.front.Addr().String())
	if err != nil {
		return err
	}
	h.listen = ls.front.Addr().String()
	if h.stun, err = stunserver.Open(ctx, stunserver.Of(h.cfg.STUN, h.listen, ""), h.stunMetrics); err != nil {
		return errors.Join(err, ls.close())
	}
	h.front.serving = credentials.NewServerCertificate(h.credentials.CA(), h.cfg.Name, h.addresses(at), h.now)
	h.own.Bind(h.advertise, ls.front, ls.admin)
	if err := h.settings.Load().ports.checkOwn(h.own.FromHere()); err != nil {
		return errors.Join(err, ls.close(), h.stun.Close())
	}
	h.front.joinHTTP, h.front.apiHTTP = listener.NewHandoff(ls.front.Addr()), listener.NewHandoff(ls.front.Addr())

	// Everything that carries streams lives until the drain is over.
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	g := run.NewGroup(inner)
	h.sockets = frontend.NewSockets(inner, h.cfg.RunDir, h.front.bindSocket, h.log)
	if err := h.startSockets(); err != nil {
		h.sockets.Stop()
		return errors.Join(err, ls.close(), h.stun.Close(), h.sockets.Wait())
	}
	api := h.api.apiHandler()
	g.Go("main port", func(ctx context.Context) error { return h.front.serveFront(ctx, h.front.sparing(ls.front)) })
	h.serveHTTP(g, "enrolment", h.front.joinHTTP, h.join.joinHandler())
	h.serveHTTP(g, "remote admin API", h.front.apiHTTP, h.join.byRole(map[id.Role]http.Handler{
		id.RoleOperator: api, id.RoleEdge: h.api.edgeHandler(), id.RoleEndpoint: h.api.network.endpointHandler(),
	}))
	h.serveHTTP(g, "admin socket", ls.socket, api)
	probes := listener.Few(ls.admin, listener.Spare(h.descriptors.Most()),
		func() { h.metrics.Refused.WithLabelValues(string(fault.CodeLimit)).Inc() })
	h.serveHTTP(g, "admin port", tls.NewListener(probes, h.adminTLS()), h.probes())
	g.Go("STUN", h.stun.Run)
	g.Go("policy watcher", h.policies.Watch)
	g.Go("memory", h.memory.Run)
	g.Go("refusals", h.record.Run)
	close(h.ready)
	h.log.Info("hub is ready", "listen", h.listen, "advertise", h.advertise, "admin", ls.admin.Addr().String(),
		"stun", h.stun.Status().Listen,
		"adminSocket", h.adminSocket(), "clusters", len(h.clusters.all()))

	select {
	case <-ctx.Done():
		h.drain(hard)
	case <-g.Context().Done(): // a part failed; Wait says which
	}
	cancel()
	err = errors.Join(g.Wait(), h.sockets.Wait())
	h.record.Turn(time.Now()) // what was refused since the last interval, to the very end
	return err
}

func (h *Hub) startSockets() error {
	records, err := h.state.Clusters()
	if err != nil {
		return err
	}
	if err := h.sockets.Load(records); err != nil {
		return err
	}
	for _, c := range h.settings.Load().sockets.Clusters {
		h.clusters.add(c.Name)
	}
	return h.sockets.Apply(&h.settings.Load().sockets)
}

func (h *Hub) adminSocket() string { return AdminSocket(h.cfg.RunDir) }

// AdminSocket is where a hub with this run directory serves its admin API.
func AdminSocket(runDir string) string { return filepath.Join(runDir, "admin", "hub.sock") }

func (h *Hub) openListeners(ctx context.Context) (ls listeners, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, ls.close())
		}
	}()
	if ls.front, err = listener.Listen(ctx, "--listen", h.cfg.Listen); err != nil {
		return ls, err
	}
	if ls.admin, err = listener.Listen(ctx, "--admin-listen", h.cfg.AdminListen); err != nil {
		return ls, err
	}
	if err = frontend.PrivateDir(filepath.Dir(h.adminSocket())); err != nil {
		return ls, err
	}
	socket, err := frontend.ListenUnix(frontend.SocketSpec{Path: h.adminSocket(), Mode: 0o600, UID: -1, GID: -1})
	if err == nil { // else a nil that is no nil
		ls.socket = socket
	}
	return ls, err
}

func (ls listeners) close() (err error) {
	for _, l := range []net.Listener{ls.front, ls.admin, ls.socket} {
		if l != nil {
			err = errors.Join(err, l.Close())
		}
	}
	return err
}

func (p *parts) serveHTTP(g *run.Group, name string, ln net.Listener, handler http.Handler) {
	srv := listener.HTTP{Handler: handler, Header: limit.RequestHeader, Log: p.log, Conn: withPeer}
	g.Go(name, func(ctx context.Context) error { return srv.Serve(ctx, ln) })
}

func (h *Hub) adminTLS() *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS13,
		NextProtos:     []string{"http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return h.front.serving.Get(h.now()) },
	}
}

func (h *Hub) probes() http.Handler {
	return listener.Probes{Metrics: h.reg, Pprof: h.cfg.Pprof, Ready: func(w http.ResponseWriter, _ *http.Request) {
		if h.draining.Load() {
			writeFault(w, fault.New(fault.CodeDraining, "the hub is shutting down"))
			return
		}
		w.Write([]byte("ok\n"))
	}}.Handler()
}

// drain refuses new streams, tells the agents, and waits for the live streams
// to end, for the drain timeout, or for the end of hard.
func (h *Hub) drain(hard context.Context) {
	h.draining.Store(true)
	for _, c := range h.clusters.all() {
		for _, s := range c.live() {
			s.beat.Send(&pb.Control{Frame: &pb.Control_Drain{Drain: &pb.Drain{Reason: "the hub is shutting down"}}})
		}
	}
	h.relays.drainRelays()
	bound, cancel := context.WithTimeout(hard, h.cfg.Drain)
	defer cancel()
	h.log.Info("draining", "streams", h.liveStreams(), "bound", h.cfg.Drain)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for h.liveStreams() > 0 {
		select {
		case <-bound.Done():
			h.log.Warn("the drain is over: live streams are cut", "streams", h.liveStreams(),
				telemetry.AttrReason, drainEnd(hard))
			return
		case <-tick.C:
		}
	}
	h.log.Info("drained", telemetry.AttrReason, "no stream is left")
}

func drainEnd(hard context.Context) string {
	if hard.Err() != nil {
		return "stopped a second time"
	}
	return "the drain timeout has passed"
}

func (h *Hub) liveStreams() (n int64) {
	for _, c := range h.clusters.all() {
		n += c.ports.streams.Load() + c.backendStreams()
		for _, s := range c.live() {
			// The last bytes of a stream that has ended here may still wait for the
			// agent to take them. The control stream counts, too.
			n += max(s.streams.Load(), int64(s.link.Info().Streams)-1)
		}
	}
	return n
}
