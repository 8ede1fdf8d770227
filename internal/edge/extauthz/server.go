// SPDX-License-Identifier: Apache-2.0

package extauthz

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/netutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/tombolo-io/tombolo/internal/access/audit"
	"github.com/tombolo-io/tombolo/internal/access/authz"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/edge/tenant"
)

// Options are what a Server needs.
type Options struct {
	Policy  *authz.Table
	Tenants *tenant.Table
	Audit   *audit.Writer // nil: no records
	Log     *slog.Logger
	Reg     prometheus.Registerer
}

// Server answers Envoys.
type Server struct {
	authv3.UnimplementedAuthorizationServer
	Options
	metrics *telemetry.ExtAuthz
	calls   *run.Limiter

	refusals audit.Refusals
}

// New makes a Server.
func New(o Options) *Server {
	return &Server{
		Options: o, calls: run.NewLimiter(callsAtOnce),
		metrics: telemetry.NewExtAuthz(o.Reg, []string{filterNetwork, filterHTTP}, func() float64 {
			return float64(o.Tenants.Len())
		}),
	}
}

// CountReload counts a change of the policy or of the tenants: nil, or what was refused.
func (s *Server) CountReload(err error) {
	code := fault.Code("")
	if err != nil {
		code = fault.From(err).Code
	}
	s.metrics.Reloads.WithLabelValues(telemetry.Outcome(code)).Inc()
}

// Check implements authv3.AuthorizationServer. A refusal is an answer too, never an error of the
// call: Envoy may be told to let pass what it cannot ask about.
func (s *Server) Check(_ context.Context, req *authv3.CheckRequest) (*authv3.CheckResponse, error) {
	if !s.calls.TryAcquire() {
		a := asked{filter: filterNetwork}
		if req.GetAttributes().GetRequest().GetHttp() != nil {
			a.filter = filterHTTP
		}
		return s.end(a, authz.Ruling{}, fault.New(fault.CodeLimit, "too many requests are decided at a time")), nil
	}
	defer s.calls.Release()
	a, err := find(req, s.Tenants)
	if err != nil {
		return s.end(a, authz.Ruling{}, fault.From(err)), nil
	}
	r := s.Policy.Decide(a.policy)
	switch {
	case !r.Judged && a.policy.Protected:
		return s.end(a, r, fault.New(fault.CodePolicyDenied, "the policy refuses the source").
			Whyf("the cluster is protected, and there is no policy")), nil
	case !r.Allow:
		return s.end(a, r, fault.New(fault.CodePolicyDenied, "the policy refuses the source").Whyf("%s", r.Why())), nil
	}
	if err := s.Audit.Admit(); err != nil {
		return s.end(a, r, fault.From(err)), nil
	}
	return s.end(a, r, nil), nil
}

// end counts and records a decision, and makes its answer.
func (s *Server) end(a asked, r authz.Ruling, f *fault.Fault) *authv3.CheckResponse {
	out := answer(a, r, f)
	var code fault.Code
	if f != nil {
		code = f.Code
	}
	s.metrics.Checks.WithLabelValues(a.filter, telemetry.Outcome(code)).Inc()
	now := time.Now()
	rec := audit.Record{
		Kind: audit.KindDial, Time: now, At: audit.AtEdge, Frontend: a.filter, Cluster: a.policy.Cluster,
		Egress: a.policy.Flow, Asked: a.text, Rule: r.Rule, Policy: r.Version.String(),
	}
	if a.policy.Source.IsValid() {
		rec.Source = a.policy.Source.String()
	}
	rec.End(f)
	if r.Judged {
		rec.Verdict = audit.Deny
		if r.Allow {
			rec.Verdict = audit.Allow
		}
	}
	if f == nil {
		s.Audit.Write(rec)
		return out
	}
	rec.Kind = audit.KindRefusal
	if s.refusals.Take(now, rec, rec.Source) {
		s.Audit.Write(rec)
		s.Log.Info("refused", telemetry.AttrCluster, rec.Cluster, telemetry.AttrPeer, rec.Source, telemetry.AttrCode, code,
			telemetry.AttrReason, out.Status.Message)
	}
	return out
}

// turn records how many refusals of the last interval have no record.
func (s *Server) turn(now time.Time) {
	for _, rec := range s.refusals.Turn(now) {
		s.Audit.Write(rec)
	}
}

// Serve answers on ln until ctx ends; it owns ln. Calls that are being decided are answered first.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	srv := grpc.NewServer(
		grpc.MaxRecvMsgSize(messageBytes),
		grpc.MaxHeaderListSize(headerBytes),
		grpc.MaxConcurrentStreams(callsPerConn),
		grpc.ConnectionTimeout(connectTime),
		grpc.WaitForHandlers(true),
	)
	authv3.RegisterAuthorizationServer(srv, s)
	alive := health.NewServer()
	alive.SetServingStatus("envoy.service.auth.v3.Authorization", healthpb.HealthCheckResponse_SERVING)
	healthpb.RegisterHealthServer(srv, alive)
	g := run.NewGroup(ctx)
	g.Go("records", func(ctx context.Context) error {
		turn := func() { s.turn(time.Now()) }
		defer turn()
		return run.Every(ctx, limit.AuditTold, turn)
	})
	stop := run.OnDone(ctx, func() {
		alive.Shutdown()
		bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
		defer cancel()
		over := run.NewGroup(context.WithoutCancel(ctx))
		over.Do(func(context.Context) { srv.GracefulStop() })
		over.WaitContext(bound)
		srv.Stop()
		over.Wait()
	})
	err := srv.Serve(netutil.LimitListener(ln, connections))
	stop()
	srv.Stop()
	if errors.Is(err, grpc.ErrServerStopped) || ctx.Err() != nil {
		err = nil
	}
	g.Stop()
	return errors.Join(err, g.Wait())
}
