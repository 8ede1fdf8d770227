// SPDX-License-Identifier: Apache-2.0

// Package server is the server of kubernetes-sigs/apiserver-network-proxy as a program: its flags, ports, probes and
// metrics around package konnectivity. It does not know the packets, and decides nothing about a dial.
package server

import (
	"context"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/listener"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
	"github.com/tombolo-io/tombolo/internal/stream/konnectivity"
	"github.com/tombolo-io/tombolo/internal/stream/konnectivity/dropin"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// Deps is what a server is given.
type Deps struct {
	Log    *slog.Logger
	Reg    *prometheus.Registry
	Getenv func(string) string
	Gate   func(Behind) (Gate, error) // nil: none

	Reviews time.Duration // least time between two reviews of a connected agent's token; 0: a few minutes
}

// Server is one.
type Server struct {
	checked
	Deps
	metrics  *telemetry.KonnectivityServer
	agents   *konnectivity.Agents
	draining chan struct{} // closed when no more is dialled
	leases   *leaseKeeper  // nil: there is no lease
	gate     Gate          // nil: there is none
	callers  atomic.Int64  // connections of callers that are under way

	front, agent, health, admin net.Listener
}

// New makes a server; Run runs it.
func New(o Options, d Deps) (*Server, error) {
	c, err := o.check()
	if err != nil {
		return nil, err
	}
	s := &Server{checked: c, Deps: d, draining: make(chan struct{})}
	files := &dropin.Files{Cert: o.ClusterCert, Key: o.ClusterKey, CA: o.ClusterCA, Edit: c.edit}
	protocols := []string{"h2"}
	if o.Native {
		protocols = []string{konnectivity.ALPN, "h2"} // the first one that an agent offers too
	}
	secure, err := files.Server(protocols...)
	if err != nil {
		return nil, err
	}
	options := konnectivity.AgentsOptions{
		Log: d.Log, Observe: observer{s}, ServerID: o.ServerID, Count: func() int { return o.ServerCount },
		Strategies: c.strategies, TLS: secure, Keepalive: keepalive(o.Keepalive, o.keepaliveGiven()), Dial: o.DialTimeout,
		Refused: func(c fault.Code) { s.metrics.Refused.WithLabelValues(string(c)).Inc() },
	}
	if o.AgentNamespace != "" {
		r, err := s.reviewer()
		if err != nil {
			return nil, err
		}
		options.Authorize, options.Watch = r.authorize, r.watch
	}
	if o.Leases {
		if s.leases, err = s.leaseKeeper(); err != nil {
			return nil, err
		}
	}
	s.agents = konnectivity.NewAgents(options)
	s.metrics = newMetrics(d.Reg, s.agents, c.strategies)
	if d.Gate != nil {
		if s.gate, err = d.Gate(s.behind()); err != nil {
			return nil, err
		}
		s.agents.Budget = s.gate.Budget()
	}
	return s, nil
}

// keepalive is in seconds unless it was given: an agent that is gone shall not be dialled for an hour.
func keepalive(value time.Duration, given bool) time.Duration {
	if given {
		return value
	}
	return keepaliveDefault
}

// Run serves until soft ends and then drains, at most for --graceful-shutdown-timeout or until hard ends.
func (s *Server) Run(soft, hard context.Context) error {
	if err := s.listen(hard); err != nil {
		return err
	}
	if s.Profiles.Contention {
		runtime.SetBlockProfileRate(1)
	}
	g := run.NewGroup(hard)
	front := &quiet{Listener: s.front, until: g.Context()}
	g.Go("agents", func(ctx context.Context) error { return s.agents.Serve(ctx, s.agent) })
	g.Go("frontend", func(ctx context.Context) error {
		s.awaitAgent(ctx)
		return s.serveFrontend(ctx, front)
	})
	g.Go("health", func(ctx context.Context) error {
		return dropin.HTTP(dropin.Health(s.Reg, s.ready), s.Log).Serve(ctx, s.health)
	})
	g.Go("admin", func(ctx context.Context) error {
		return dropin.HTTP(dropin.Admin(s.Reg, s.Profiles), s.Log).Serve(ctx, s.admin)
	})
	if s.leases != nil {
		g.Go("lease", s.leases.run)
	}
	if s.gate != nil {
		s.gate.Bind(s.front, s.agent, s.health, s.admin)
		g.Go("gate", s.gate.Run)
	}
	s.Log.Info("konnectivity server is up", "frontend", s.front.Addr().String(), "mode", s.Mode,
		"agents", s.agent.Addr().String(), "health", s.health.Addr().String(), "admin", s.admin.Addr().String())
	select {
	case <-soft.Done():
		s.drain(g.Context(), front)
	case <-g.Context().Done():
	}
	g.Stop()
	return g.Wait()
}

// awaitAgent lets kube-apiserver wait with its dials, which the kernel takes, while the agents of the server that was
// here before connect again: the reference's server says that there is none.
func (s *Server) awaitAgent(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, firstAgent)
	defer cancel()
	for {
		if tunnels, _, _ := s.agents.Counts(); tunnels > 0 || !run.Wait(ctx, firstLook) {
			return
		}
	}
}

// drain waits for the connections, and dials no more.
func (s *Server) drain(ctx context.Context, front *quiet) {
	front.stop() // first, so that whoever is sent away does not come back
	close(s.draining)
	if s.Drain == 0 {
		s.Log.Info("stopping: --graceful-shutdown-timeout is 0")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, s.Drain)
	defer cancel()
	s.Log.Info("draining", "timeout", s.Drain.String())
	over := false
	run.Every(ctx, drainLook, func() {
		if _, pending, open := s.agents.Counts(); pending+open == 0 && s.callers.Load() == 0 {
			over = true
			cancel()
		}
	})
	if over {
		s.Log.Info("drained")
	} else {
		_, _, open := s.agents.Counts()
		s.Log.Warn("the time to drain is over", "connections", open, "callers", s.callers.Load())
	}
}

// dial is that of the frontend. While the server drains, gRPC opens no streams, and those that are open may dial.
func (s *Server) dial(ctx context.Context, d wire.Dial) (carrier.Stream, error) {
	select {
	case <-s.draining:
		if s.Mode == ModeGRPC {
			break
		}
		return nil, fault.New(fault.CodeDraining, "the konnectivity server is stopping").Hint("use another one")
	default:
	}
	if d.Network == "" {
		d.Network = wire.NetworkTCP
	}
	if s.gate != nil {
		return s.gate.Dial(ctx, d, s.protocol(), d.Caller)
	}
	return s.agents.Dial(ctx, d)
}

// ready says whether the server has an agent.
func (s *Server) ready(w http.ResponseWriter, r *http.Request) {
	tunnels, pending, open := s.agents.Counts()
	if tunnels == 0 {
		w.WriteHeader(http.StatusInternalServerError)
		io.WriteString(w, "no connection to any proxy agent")
		return
	}
	io.WriteString(w, "ok")
	if r.URL.Query().Has("verbose") {
		io.WriteString(w, "\n")
		for _, strategy := range s.strategies {
			io.WriteString(w, "agents by "+string(strategy)+": "+strconv.Itoa(s.agents.Ready(strategy))+"\n")
		}
		io.WriteString(w, "tunnels: "+strconv.Itoa(tunnels)+"\ndials under way: "+strconv.Itoa(pending)+
			"\nconnections: "+strconv.Itoa(open)+"\n")
	}
}

// listen opens the ports.
func (s *Server) listen(ctx context.Context) (err error) {
	var opened []net.Listener
	defer func() {
		if err != nil {
			for _, ln := range opened {
				ln.Close()
			}
		}
	}()
	for _, p := range []struct {
		into    *net.Listener
		flag    string
		address string
		port    int
	}{
		{&s.agent, "--agent-port", s.AgentAddress, s.AgentPort},
		{&s.health, "--health-port", s.HealthAddress, s.HealthPort},
		{&s.admin, "--admin-port", s.AdminAddress, s.AdminPort},
	} {
		if *p.into, err = listener.Listen(ctx, p.flag, at(p.address, p.port)); err != nil {
			return err
		}
		opened = append(opened, *p.into)
	}
	if s.Socket == "" {
		s.front, err = listener.Listen(ctx, "--server-port", at(s.ServerAddress, s.ServerPort))
	} else { // at last: whoever has no ports must not take the socket of the server that has them
		s.front, err = s.listenSocket(ctx)
	}
	return err
}

func at(address string, port int) string { return net.JoinHostPort(address, strconv.Itoa(port)) }

// listenSocket makes the socket, which its group may use too, as the reference's.
func (s *Server) listenSocket(ctx context.Context) (net.Listener, error) {
	if n := len(s.Socket); n >= limit.SocketPath {
		return nil, fault.Newf(fault.CodeSocketPath, "the socket path %s has %d bytes", s.Socket, n).
			Whyf("the kernel takes at most %d", limit.SocketPath-1).Hint("choose a shorter --uds-name")
	}
	if info, err := os.Lstat(s.Socket); err == nil && s.ReplaceSocket && info.Mode()&fs.ModeSocket != 0 {
		os.Remove(s.Socket) // its error is that of listening
	}
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "unix", s.Socket)
	if err == nil {
		err = os.Chmod(s.Socket, socketMode)
	}
	if err != nil {
		return nil, fault.Newf(fault.CodeSocketPath, "the socket %s cannot be made", s.Socket).Because(err).
			Hint("correct --uds-name, or remove what is there")
	}
	return ln, nil
}
