// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/tombolo-io/tombolo/internal/carrier"
	"github.com/tombolo-io/tombolo/internal/fault"
	"github.com/tombolo-io/tombolo/internal/limit"
	"github.com/tombolo-io/tombolo/internal/run"
	"github.com/tombolo-io/tombolo/internal/tell"
	"github.com/tombolo-io/tombolo/internal/trust"
)

// listeners are opened before anything is served, so that a start either
// succeeds as a whole or leaves nothing behind.
type listeners struct{ front, admin, socket net.Listener }

// Run serves until ctx ends; then it drains: members are told, and have the drain
// timeout to leave, which a second end (hard) cuts short. The store is kept to the
// very end.
func (s *Service) Run(ctx, hard context.Context) (err error) {
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
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
	s.work, s.grpc = run.NewGroup(inner), s.newServer()
	calls, pages := newHandoff(ls.front.Addr()), newHandoff(ls.front.Addr())
	shed := func() { s.metrics.Refused.WithLabelValues(string(fault.CodeLimit)).Inc() }
	few := func(ln net.Listener) net.Listener { return carrier.Few(ln, limit.DiscoveryPages, shed) }

	g := run.NewGroup(inner)
	front, stopFront := context.WithCancel(inner)
	defer stopFront()
	g.Go("store", s.store.Run)
	g.Go("main port", func(context.Context) error { return s.serveFront(front, ls.front, calls, pages) })
	g.Go("gRPC", func(context.Context) error {
		if err := s.grpc.Serve(calls); !errors.Is(err, net.ErrClosed) {
			return err
		}
		return nil
	})
	s.serveHTTP(g, "landing page", few(pages), carrier.Served(http.HandlerFunc(s.page)))
	s.serveHTTP(g, "admin port", few(ls.admin), carrier.Served(s.probes()))
	s.serveHTTP(g, "admin socket", few(ls.socket), carrier.Served(s.api()))
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
	attrs := []any{"listen", s.listen, "admin", s.adminAt, "adminSocket", AdminSocket(s.cfg.RunDir), "tls", s.cfg.TLS, "store", s.store.State().Kind}
	if s.certs != nil && s.certs.own != nil {
		// Members need the one or the other.
		attrs = append(attrs, "ca", filepath.Join(s.cfg.StateDir, caFile), "caPin", trust.Pin(s.certs.own.ca.Certificate()))
	}
	s.log.Info("discovery service is ready", attrs...)
}

func (s *Service) openStore(ctx context.Context) (Store, error) {
	if s.cfg.Etcd == nil {
		return OpenMemory(MemoryConfig{Board: s.board, Dir: s.cfg.StateDir, Settle: s.cfg.Settle, Snapshot: s.cfg.Snapshot, Log: s.log})
	}
	if s.opt.Etcd == nil {
		return nil, fault.New(fault.CodeConfig, "store.etcd cannot be used").Whyf("this program was built without it").Hint("take store.etcd away")
	}
	c := *s.cfg.Etcd
	c.Settle = s.cfg.Settle
	return s.opt.Etcd(ctx, c, s.board, s.stored)
}

func (s *Service) countCertificate(err error) {
	s.metrics.Certificates.WithLabelValues(string(fault.From(err).Code)).Inc()
}

// drain tells everybody, refuses new calls, and waits for the others to end, for
// the drain timeout, or for the end of hard.
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

// AdminSocket is where a service with this run directory serves its admin API.
func AdminSocket(runDir string) string { return filepath.Join(runDir, "discovery", "discovery.sock") }

func (s *Service) openListeners(ctx context.Context) (ls listeners, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, ls.close())
		}
	}()
	if ls.front, err = carrier.ListenTCP(ctx, s.cfg.Listen); err != nil {
		return ls, listenFault("listen", s.cfg.Listen, err)
	}
	if ls.admin, err = carrier.ListenTCP(ctx, s.cfg.AdminListen); err != nil {
		return ls, listenFault("admin.listen", s.cfg.AdminListen, err)
	}
	ls.socket, err = listenSocket(AdminSocket(s.cfg.RunDir))
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

func listenFault(field, address string, err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return fault.Newf(fault.CodeAddressBusy, "the address %s is in use", address).
			Whyf("another process listens there").Hint("stop it ('ss -ltnp' names it), or choose another with %s", field)
	}
	return fault.Newf(fault.CodeConfig, "cannot listen on %s", address).Because(err).Hint("correct %s", field)
}

// listenSocket makes the admin socket in a directory that only its owner enters:
// nobody meets it there with other rights than its own. The state directory's lock
// keeps a second service away, so that what nobody serves is a leftover.
func listenSocket(path string) (net.Listener, error) {
	bad := func(err error) error {
		return fault.New(fault.CodeSocketPath, "the socket "+path+" cannot be made").Because(err).
			Hint("give this user (uid %d) the directory, or choose another with --run-dir", os.Getuid())
	}
	if n := len(path); n >= limit.SocketPath {
		return nil, fault.Newf(fault.CodeSocketPath, "the socket path %s has %d bytes", path, n).
			Whyf("the kernel takes at most %d", limit.SocketPath-1).Hint("choose a shorter --run-dir")
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return nil, bad(err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, bad(err)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return nil, bad(err)
	}
	if info, err := os.Lstat(path); err == nil {
		if info.Mode()&fs.ModeSocket == 0 {
			return nil, bad(errors.New("something that is no socket stands there"))
		}
		if conn, err := net.DialTimeout("unix", path, time.Second); err == nil {
			conn.Close()
			return nil, fault.Newf(fault.CodeSocketBusy, "the socket %s is served by a live process", path).
				Hint("stop the other service, or choose another --run-dir")
		}
		if err := os.Remove(path); err != nil {
			return nil, bad(err)
		}
	}
	ln, err := net.Listen("unix", path)
	if err != nil {
		return nil, bad(err)
	}
	return ln, nil
}

// serveHTTP runs one HTTP server with bounds on everything a caller controls.
func (s *Service) serveHTTP(g *run.Group, name string, ln net.Listener, handler http.Handler) {
	srv := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: limit.RequestHeaderTime,
		IdleTimeout:       2 * limit.DeadIdle,
		MaxHeaderBytes:    limit.DiscoveryHeader,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
		BaseContext:       func(net.Listener) context.Context { return g.Context() },
		ConnContext:       carrier.WithFew,
	}
	g.Go(name, func(ctx context.Context) error {
		stop := run.OnDone(ctx, func() { srv.Close() })
		defer stop()
		if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			return err
		}
		return nil
	})
}

// readings are what metrics read.
func (s *Service) readings() tell.DiscoveryReadings {
	counts := func(pick func(clusters, members int, bytes int64) float64) func() float64 {
		return func() float64 { return pick(s.board.Counts()) }
	}
	return tell.DiscoveryReadings{
		Clusters:    counts(func(n, _ int, _ int64) float64 { return float64(n) }),
		Members:     counts(func(_, n int, _ int64) float64 { return float64(n) }),
		Bytes:       counts(func(_, _ int, n int64) float64 { return float64(n) }),
		Watchers:    func() float64 { return float64(s.watchers.Load()) },
		Connections: func() float64 { return float64(s.connections.Load()) },
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

func (s *Service) storeReadings() (out tell.DiscoveryStoreState) {
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
