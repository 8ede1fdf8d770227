// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"time"

	"google.golang.org/grpc"

	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/listener"
	"github.com/tombolo-io/tombolo/internal/base/private"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/stunserver"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
)

// listeners are opened before anything is served, so that a start either
// succeeds as a whole or leaves nothing behind.
type listeners struct{ front, admin, socket net.Listener }

// Run serves until ctx ends; then it drains: members are notified, and have the drain
// timeout to leave, which hard cuts short. The store is kept to the
// very end.
func (s *Service) Run(ctx, hard context.Context) (err error) {
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	if err := private.StateDir(s.cfg.StateDir, s.log); err != nil {
		return err
	}
	if err := checkShared(s.cfg); err != nil {
		return err
	}
	if s.store, err = s.openStore(ctx); err != nil {
		return err
	}
	if c, ok := s.store.(io.Closer); ok {
		defer func() { err = errors.Join(err, c.Close()) }()
	}
	if s.certs, err = openCertificates(s.cfg, s.log, s.countCertificate); err != nil {
		return err
	}
	ls, err := s.openListeners(ctx)
	if err != nil {
		return err
	}
	s.listen, s.adminAt = ls.front.Addr().String(), ls.admin.Addr().String()
	if s.stunServer, err = stunserver.Open(ctx, stunserver.Of(s.cfg.STUN, s.listen, stunserver.Port),
		s.stunMetrics); err != nil {
		return errors.Join(err, ls.close())
	}
	s.standing = newStandings(s.store)
	s.work, s.grpc = run.NewGroup(inner), s.newServer()
	calls, pages := listener.NewHandoff(ls.front.Addr()), listener.NewHandoff(ls.front.Addr())
	shed := func() { s.metrics.Refused.WithLabelValues(string(fault.CodeLimit)).Inc() }
	few := func(ln net.Listener) net.Listener { return listener.Few(ln, limit.DiscoveryPages, shed) }

	g := run.NewGroup(inner)
	front, stopFront := context.WithCancel(inner)
	defer stopFront()
	g.Go("store", s.store.Run)
	g.Go("standing", s.standing.run)
	g.Go("begun calls", func(ctx context.Context) error {
		return run.Every(ctx, limit.DiscoverySweep, func() { s.begun.sweep(time.Now()) })
	})
	main := &mainPort{
		connections: s.connections, certs: s.certs, settings: &s.settings, answers: s.answers, metrics: s.metrics, log: s.log,
	}
	g.Go("main port", func(context.Context) error { return main.serve(front, ls.front, calls, pages) })
	g.Go("gRPC", func(context.Context) error {
		// before it began, too
		if err := s.grpc.Serve(calls); !errors.Is(err, net.ErrClosed) && !errors.Is(err, grpc.ErrServerStopped) {
			return err
		}
		return nil
	})
	g.Go("STUN", s.stunServer.Run)
	s.serveHTTP(g, "landing page", few(pages), listener.Served(http.HandlerFunc(s.page)))
	s.serveHTTP(g, "admin port", few(ls.admin), s.probes())
	s.serveHTTP(g, "admin socket", few(ls.socket), listener.Served(s.api()))
	close(s.ready)
	s.tellReady()

	select {
	case <-ctx.Done():
	case <-g.Context().Done(): // a part failed; Wait says which
	}
	stopFront()
	s.drain(ctx, hard)
	cancel()
	return errors.Join(g.Wait(), s.work.Wait())
}

func (s *Service) tellReady() {
	attrs := []any{"listen", s.listen, "admin", s.adminAt, "adminSocket", AdminSocket(s.cfg.RunDir), "tls", s.cfg.TLS,
		"store", s.store.State().Kind}
	if s.certs != nil && s.certs.own != nil {
		// Members need the one or the other.
		attrs = append(attrs, "ca", filepath.Join(s.cfg.StateDir, caFile), "caPin", trust.Pin(s.certs.own.ca.Certificate()))
	}
	stun := s.stunServer.Status()
	s.log.Info("discovery service is ready", append(attrs, "stun", stun.Listen, "stunWithout", stun.Without)...)
}

func (s *Service) openStore(ctx context.Context) (Store, error) {
	if s.cfg.Etcd == nil {
		return OpenMemory(MemoryConfig{Board: s.board, Dir: s.cfg.StateDir, Settle: s.cfg.Settle, Await: s.cfg.Await,
			Snapshot: s.cfg.Snapshot, Log: s.log})
	}
	if s.opt.Etcd == nil {
		return nil, fault.New(fault.CodeConfig, "store.etcd cannot be used").Whyf("this program was built without it").
			Hint("take store.etcd away")
	}
	c := *s.cfg.Etcd
	c.Settle, c.Await = s.cfg.Settle, s.cfg.Await
	return s.opt.Etcd(ctx, c, s.board, s.stored)
}

func (s *Service) countCertificate(err error) {
	s.metrics.Certificates.WithLabelValues(string(fault.From(err).Code)).Inc()
}

// drain notifies all members, refuses new calls, and waits until the others have ended, or for the
// drain timeout, or for the end of hard.
func (s *Service) drain(ctx, hard context.Context) {
	s.drainOnce.Do(func() { close(s.draining) })
	bound, cancel := context.WithTimeout(hard, s.cfg.Drain)
	defer cancel()
	s.log.Info("draining", "watchers", s.watchers.Load(), "bound", s.cfg.Drain)
	over := run.NewGroup(context.WithoutCancel(ctx))
	over.Do(func(context.Context) { s.grpc.GracefulStop() })
	if !over.WaitContext(bound) {
		s.log.Warn("the drain is over: live calls are cut", "watchers", s.watchers.Load())
	}
	s.grpc.Stop()
	_ = over.Wait() // it has no errors: Stop ends GracefulStop
	s.log.Info("drained")
}

// alone says whether no other service has the same members: those of an etcd are
// replicas of each other, and behind one name.
func (s *Service) alone() bool { return s.cfg.Etcd == nil }

// AdminSocket is where a service with this run directory serves its admin API.
func AdminSocket(runDir string) string { return filepath.Join(runDir, "discovery", "discovery.sock") }

func (s *Service) openListeners(ctx context.Context) (ls listeners, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, ls.close())
		}
	}()
	if ls.front, err = listener.Listen(ctx, "--listen (listen)", s.cfg.Listen); err != nil {
		return ls, err
	}
	if ls.admin, err = listener.Listen(ctx, "admin.listen", s.cfg.AdminListen); err != nil {
		return ls, err
	}
	socket, err := listener.ListenUnix("--run-dir", AdminSocket(s.cfg.RunDir))
	if err == nil {
		ls.socket = socket // no typed nil
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

func (s *Service) serveHTTP(g *run.Group, name string, ln net.Listener, handler http.Handler) {
	srv := listener.HTTP{Handler: handler, Header: discoveryHeader, Log: s.log, Conn: listener.WithFew}
	g.Go(name, func(ctx context.Context) error { return srv.Serve(ctx, ln) })
}

// readings are what metrics read.
func (s *Service) readings() telemetry.DiscoveryReadings {
	counts := func(pick func(clusters, members int, bytes int64) float64) func() float64 {
		return func() float64 { return pick(s.board.Counts()) }
	}
	return telemetry.DiscoveryReadings{
		Clusters:    counts(func(n, _ int, _ int64) float64 { return float64(n) }),
		Members:     counts(func(_, n int, _ int64) float64 { return float64(n) }),
		Bytes:       counts(func(_, _ int, n int64) float64 { return float64(n) }),
		Watchers:    func() float64 { return float64(s.watchers.Load()) },
		Connections: func() float64 { return float64(s.connections.open.Load()) },
		Unread:      func() float64 { return float64(s.answers.unread.Load()) },
		CertificateEnd: func() float64 {
			if !s.serving() {
				return 0
			}
			if end := s.certs.end(); !end.IsZero() {
				return float64(end.Unix())
			}
			return 0
		},
	}
}

// serving reports whether there is a store, and all the rest.
func (s *Service) serving() bool {
	select {
	case <-s.ready:
		return true
	default:
		return false
	}
}

func (s *Service) storeReadings() (out telemetry.DiscoveryStoreState) {
	if !s.serving() {
		return out
	}
	st := s.store.State()
	out.Settled, out.Degraded = st.Settled, st.Degraded != ""
	for at, of := range map[*float64]time.Time{&out.Since: st.Since, &out.Saved: st.Saved} {
		if !of.IsZero() {
			*at = float64(of.Unix())
		}
	}
	return out
}
