// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/stunserver"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	pb "github.com/tombolo-io/tombolo/proto/discovery"
	sdr "github.com/tombolo-io/tombolo/proto/sidero"
)

// Options are what a service gets from the program around it.
type Options struct {
	Log *slog.Logger
	Reg *prometheus.Registry
	// Etcd opens a store over a board, which counts what it does; nil: this program has none.
	Etcd func(ctx context.Context, c EtcdConfig, b *Board, t *telemetry.DiscoveryStore) (Store, error)

	patience time.Duration // of tests; 0: discoveryPatience
}

// Service is a discovery service: the two protocols over one store, the landing
// page beside them, and what its operator sees of it.
type Service struct {
	cfg         Config
	opt         Options
	log         *slog.Logger
	metrics     *telemetry.Discovery
	stored      *telemetry.DiscoveryStore
	stunMetrics *telemetry.STUN
	stunServer  *stunserver.Server // set before ready
	began       time.Time

	settings atomic.Pointer[Reloadable]
	callers  *callers
	board    *Board
	store    Store
	standing *standings    // set before ready
	certs    *certificates // nil: without TLS
	grpc     *grpc.Server
	work     *run.Group // of calls: what sends and receives beside their handlers

	answers     *answers
	connections *connections
	begun       arrivals
	watchers    atomic.Int64
	draining    chan struct{} // closed when the drain begins
	drainOnce   sync.Once
	ready       chan struct{} // closed when Run serves
	listen      string        // set before ready
	adminAt     string        // set before ready
}

// New makes a service of a valid configuration. Run must follow.
func New(cfg Config, opt Options) *Service {
	s := &Service{
		cfg: cfg, opt: opt, log: opt.Log, began: time.Now(), callers: newCallers(discoveryCallers, cfg.rates),
		board: NewBoard(cfg.limits.board()), draining: make(chan struct{}), ready: make(chan struct{}),
	}
	s.callers.draining = s.draining
	first := cfg.Reloadable
	first.moved = make(chan struct{})
	s.settings.Store(&first)
	s.connections = newConnections(&s.settings, s.callers)
	s.metrics = telemetry.NewDiscovery(opt.Reg, s.readings())
	s.stored = telemetry.NewDiscoveryStore(opt.Reg, s.storeReadings)
	s.stunMetrics = telemetry.NewSTUN(opt.Reg)
	s.answers = newAnswers(cmp.Or(opt.patience, discoveryPatience), &s.settings, s.callers, s.metrics, s.log)
	return s
}

// Ready is closed when the service serves.
func (s *Service) Ready() <-chan struct{} { return s.ready }

// Listen is where it does, once it is ready.
func (s *Service) Listen() string { return s.listen }

// Admin is where its probes are, once it is ready.
func (s *Service) Admin() string { return s.adminAt }

// newServer makes the gRPC server. Everything that a caller may take has a bound.
func (s *Service) newServer() *grpc.Server {
	srv := grpc.NewServer(
		grpc.ForceServerCodecV2(s.answers.codec),
		grpc.Creds(newLines()),
		grpc.MaxRecvMsgSize(discoveryMessage),
		grpc.MaxHeaderListSize(discoveryHeader),
		grpc.MaxConcurrentStreams(discoveryStreams),
		grpc.ConnectionTimeout(discoveryBegin),
		grpc.StaticStreamWindowSize(discoveryWindow),
		grpc.StaticConnWindowSize(discoveryWindow),
		grpc.ReadBufferSize(discoveryBuffer),
		grpc.WaitForHandlers(true),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time: discoveryPing, Timeout: discoveryPong, MaxConnectionIdle: discoveryUnused,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
			MinTime: discoveryPinged, PermitWithoutStream: true,
		}),
		grpc.InTapHandle(s.begun.tap),
		grpc.StatsHandler(gone{}),
		grpc.UnaryInterceptor(s.unary),
		grpc.StreamInterceptor(s.streamed),
	)
	sdr.RegisterClusterServer(srv, older{s: s})
	pb.RegisterDiscoveryServer(srv, ours{s: s})
	return srv
}

// Reload takes over what a running service can. Settings that need a restart are named in the log.
func (s *Service) Reload(next Config) {
	if fixed := fixedChanges(s.cfg, next); len(fixed) > 0 {
		s.log.Warn("some changes need a restart", "fields", fixed)
	}
	// Talos nodes learn of a redirect when they begin a watch.
	was := s.settings.Load()
	move := next.redirect != "" && next.redirect != was.redirect
	next.moved = was.moved
	if move {
		next.moved = make(chan struct{})
	}
	s.settings.Store(&next.Reloadable)
	if move {
		close(was.moved)
	}
	s.board.Bound(next.limits.board())
	s.callers.bound(next.rates)
	select {
	case <-s.ready:
	default:
		return // it reads its certificate anyway
	}
	if s.certs != nil {
		s.certs.look(time.Now(), next.Reloadable, true)
	}
}

// CountReload counts a reload by its outcome.
func (s *Service) CountReload(err error) {
	code := fault.Code("")
	if err != nil {
		code = fault.From(err).Code
	}
	s.metrics.Reloads.WithLabelValues(telemetry.Outcome(code)).Inc()
}

// admit finds the caller, and waits for its turn.
func (s *Service) admit(ctx context.Context, method string) (context.Context, error) {
	var at netip.AddrPort
	var over known
	if p, ok := peer.FromContext(ctx); ok {
		at = addrOf(p.Addr)
		over, _ = p.AuthInfo.(known)
	}
	md, _ := metadata.FromIncomingContext(ctx)
	at = realCaller(at, s.settings.Load().proxies, forwarded{
		realIP: md.Get("x-real-ip"), chain: md.Get("x-forwarded-for"),
	})
	return context.WithValue(ctx, calledKey{}, &called{from: at, over: over.greeted}),
		s.callers.turn(ctx, at.Addr(), costOf(method))
}

func (s *Service) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	came(ctx)
	lighten(req, s.settings.Load().limits.Endpoints)
	ctx, err := s.admit(ctx, info.FullMethod)
	if err == nil {
		err = readable(req)
	}
	var out any
	if err == nil {
		out, err = s.answer(ctx, req, next)
	}
	s.count(path.Base(info.FullMethod), err)
	return out, statusOf(err)
}

// answer has a unary call answered. The answer counts before anything is done for it.
func (s *Service) answer(ctx context.Context, req any, next grpc.UnaryHandler) (any, error) {
	c := callOf(ctx)
	release, err := s.answers.claim(c.from.Addr(), discoveryAnswer)
	if err != nil {
		return nil, err
	}
	out, err := next(ctx, req)
	if err == nil {
		out, err = s.answers.reply(c, out, release)
	}
	if err != nil {
		release()
		return nil, err
	}
	return out, nil
}

func (s *Service) streamed(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo,
	next grpc.StreamHandler) error {
	if info.IsClientStream { // its handler reads all the time
		came(stream.Context())
	}
	ctx, err := s.admit(stream.Context(), info.FullMethod)
	if err == nil {
		err = s.followed(ctx, stream, func(c calledStream) error { return next(srv, c) })
	}
	s.count(path.Base(info.FullMethod), err)
	return statusOf(err)
}

// count counts a call by its outcome. A caller that left is no fault.
func (s *Service) count(method string, err error) {
	code := fault.Code("")
	var f *fault.Fault
	if errors.As(err, &f) {
		code = f.Code
	} else if err != nil && status.Code(statusOf(err)) == codes.Internal {
		code = fault.CodeInternal
	}
	s.metrics.Calls.WithLabelValues(method, telemetry.Outcome(code)).Inc()
}

// statusOf is an error as gRPC's, the one place where that is done.
func statusOf(err error) error {
	var f *fault.Fault
	switch {
	case err == nil:
		return nil
	case errors.As(err, &f):
		return status.Error(grpcCode(f.Code), f.Explain())
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return status.FromContextError(err).Err()
	}
	if _, ok := status.FromError(err); ok { // gRPC's own, of a stream that broke
		return err
	}
	return status.Error(codes.Internal, fault.From(err).Explain())
}

func grpcCode(code fault.Code) codes.Code {
	if code == fault.CodeWatchLost {
		return codes.Aborted
	}
	switch fault.ClassOf(code) {
	case fault.Invalid:
		return codes.InvalidArgument
	case fault.Unauthenticated:
		return codes.Unauthenticated
	case fault.Denied:
		return codes.PermissionDenied
	case fault.NotFound:
		return codes.NotFound
	case fault.Conflict:
		return codes.FailedPrecondition
	case fault.Unavailable, fault.Timeout, fault.Upstream:
		return codes.Unavailable
	case fault.Exhausted:
		return codes.ResourceExhausted
	}
	return codes.Internal
}
