// SPDX-License-Identifier: Apache-2.0

package routes

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-io/tombolo/internal/base/echo"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/listener"
	"github.com/tombolo-io/tombolo/internal/base/plan"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel/machine"
	"github.com/tombolo-io/tombolo/internal/vpn/network"
)

// Options are what a Router gets from its owner.
type Options struct {
	Log *slog.Logger
	Reg *prometheus.Registry
}

// state is what is changed in the kernel.
type state interface {
	Check(want plan.State) []*fault.Fault
	Observe() (plan.State, error)
	Apply(steps []plan.Step) error
	Close() error
}

// host is this machine.
type host struct {
	open   func(kernel.Names) (state, error)
	hop    func(netip.Addr) (machine.Hop, error)
	lookup func(ctx context.Context, network, host string) ([]netip.Addr, error)
	asks   func(ctx context.Context, e Endpoint, at netip.Addr) bool
}

// Router is a running 'tombolo vpn routes'.
type Router struct {
	cfg     Config
	log     *slog.Logger
	reg     *prometheus.Registry
	metrics *telemetry.VPNRoutes
	host    host
	kernel  state

	mu     sync.Mutex
	all    []known
	own    netip.Addr // of this machine, by which endpoints are preferred
	chosen int
	failed *fault.Fault // of the kernel
}

// New makes a Router. It changes nothing yet.
func New(cfg Config, o Options) *Router {
	return &Router{cfg: cfg, log: o.Log, reg: o.Reg, metrics: telemetry.NewVPNRoutes(o.Reg), chosen: -1,
		all: make([]known, len(cfg.Endpoints)),
		host: host{open: func(n kernel.Names) (state, error) { return kernel.New(n) }, hop: machine.HopTo,
			lookup: net.DefaultResolver.LookupNetIP, asks: asks}}
}

// Reload says that everything changes with the next start.
func (r *Router) Reload(Config) {
	r.log.Warn("these settings change with the next start", "settings", "all")
}

// Run keeps the route until ctx ends. What it changed in the kernel goes with it.
func (r *Router) Run(ctx, _ context.Context) (err error) {
	health, err := listener.Listen(ctx, "healthListen", r.cfg.HealthListen)
	if err != nil {
		return err
	}
	defer func() { // Serve owns it as soon as it runs
		if closed := health.Close(); !errors.Is(closed, net.ErrClosed) {
			err = errors.Join(err, closed)
		}
	}()
	r.kernel, err = r.host.open(kernel.Names{Table: r.cfg.Table, Protocol: kernel.Protocol, Command: "tombolo vpn routes"})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.kernel.Close()) }()
	if clashes := r.kernel.Check(r.cfg.state(r.all, -1)); len(clashes) > 0 {
		return clashes[0]
	}
	defer func() { err = errors.Join(err, r.apply(plan.State{})) }()
	g := run.NewGroup(ctx)
	g.Go("health", func(ctx context.Context) error {
		return listener.Health{Metrics: r.reg, Log: r.log, Ready: r.unready}.Serve(ctx, health)
	})
	g.Go("route", r.loop)
	return g.Wait()
}

// loop asks the endpoints, and keeps the route with one that answers.
func (r *Router) loop(ctx context.Context) error {
	var resolved time.Time
	for {
		look := time.Since(resolved) >= resolveEvery
		if look {
			resolved = time.Now()
			r.resolve(ctx)
		}
		r.probe(ctx)
		if ctx.Err() != nil {
			return nil
		}
		r.decide(time.Now(), look)
		if !run.Wait(ctx, probeEvery) {
			return nil
		}
	}
}

// resolve finds where the machines are. What a name meant counts on while it is not resolved.
func (r *Router) resolve(ctx context.Context) {
	g := run.NewGroup(ctx)
	for i, e := range r.cfg.Endpoints {
		g.Do(func(ctx context.Context) {
			at, why := r.find(ctx, e)
			r.mu.Lock()
			defer r.mu.Unlock()
			k := r.all[i]
			if !at.IsValid() {
				if k.why != why {
					r.log.Warn("an endpoint is not found", "endpoint", e.Name, telemetry.AttrReason, why)
				}
				k.why = why
			} else {
				k = r.atLocked(e, k, at)
			}
			r.all[i] = k
		})
	}
	_ = g.Wait() // what failed is in the table
}

// find is the address of an endpoint machine.
func (r *Router) find(ctx context.Context, e Endpoint) (netip.Addr, string) {
	if e.Addr.IsValid() {
		return e.Addr, ""
	}
	ctx, cancel := context.WithTimeout(ctx, resolveWait)
	defer cancel()
	addrs, err := r.host.lookup(ctx, "ip", e.Host)
	if err != nil {
		return netip.Addr{}, err.Error()
	}
	var first netip.Addr
	for _, a := range addrs { // the smallest one, so that an answer in another order changes nothing
		a = a.Unmap()
		if a.Is4() == r.cfg.Range.Addr().Is4() && !r.cfg.Range.Contains(a) && (!first.IsValid() || a.Less(first)) {
			first = a
		}
	}
	if !first.IsValid() {
		return first, "its name has no address of the range's family"
	}
	return first, ""
}

// atLocked is an endpoint at an address, if that can be a next hop. The caller holds mu.
func (r *Router) atLocked(e Endpoint, k known, at netip.Addr) known {
	if k.addr != at {
		k = known{addr: at}
	}
	why := ""
	hop, err := r.host.hop(at)
	switch {
	case err != nil:
		why = err.Error()
	case hop.Self:
		k.self = true
	case hop.Gateway.IsValid():
		why = "it is behind the router " + hop.Gateway.String() + ", which would send the packets elsewhere: " +
			"a next hop has to be on a link of this machine"
	}
	if k.link = hop.Link; why != "" || hop.Self {
		k.link = ""
	}
	if !r.own.IsValid() && why == "" {
		r.own = hop.Own
	}
	if why != "" && why != k.why {
		r.log.Warn("an endpoint cannot have the route", "endpoint", e.Name, "address", at, telemetry.AttrReason, why)
	}
	k.why = why
	return k
}

// probe asks all endpoints at once.
func (r *Router) probe(ctx context.Context) {
	g := run.NewGroup(ctx)
	for i, e := range r.cfg.Endpoints {
		r.mu.Lock()
		k := r.all[i]
		r.mu.Unlock()
		if k.link == "" {
			continue
		}
		g.Do(func(ctx context.Context) {
			ctx, cancel := context.WithTimeout(ctx, probeWait)
			defer cancel()
			if !r.host.asks(ctx, e, k.addr) {
				return
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			r.all[i] = r.all[i].heard(time.Now())
		})
	}
	_ = g.Wait() // they return nothing
}

// decide gives the route to an endpoint, and looks at the kernel when something has changed or it is time.
func (r *Router) decide(now time.Time, look bool) {
	r.mu.Lock()
	had := r.chosen
	r.chosen = choose(r.all, network.Order(r.own, len(r.all)), had, now)
	chosen, want := r.chosen, r.cfg.state(r.all, r.chosen)
	for i, e := range r.cfg.Endpoints {
		up := 0.0
		if i == chosen {
			up = 1
		}
		r.metrics.Route.WithLabelValues(e.Name).Set(up)
	}
	r.mu.Unlock()
	if chosen != had {
		r.metrics.Moves.Inc()
		name := "nobody: the range is unreachable"
		if chosen >= 0 {
			name = r.cfg.Endpoints[chosen].Name
		}
		r.log.Info("the route goes to another endpoint", "range", r.cfg.Range, "endpoint", name)
	} else if !look {
		return
	}
	err := r.apply(want)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failed = fault.From(err); err != nil {
		r.log.Error("the route cannot be set", telemetry.AttrCode, r.failed.Code, telemetry.AttrReason, r.failed.Error())
	}
}

// apply makes the kernel as it is wanted: also what a killed process left is taken over.
func (r *Router) apply(want plan.State) error {
	have, err := r.kernel.Observe()
	if err != nil {
		return err
	}
	return r.kernel.Apply(plan.Diff(have, want))
}

// unready says why there is no route.
func (r *Router) unready() *fault.Fault {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failed != nil {
		return r.failed
	}
	f := fault.New(fault.CodeVPNDown, "no endpoint has the route")
	for i, k := range r.all {
		switch {
		case k.self, i == r.chosen:
			return nil
		case k.why != "":
			f.Whyf("%s: %s", r.cfg.Endpoints[i].Name, k.why)
		case f.Why == "":
			f.Whyf("%s does not answer", r.cfg.Endpoints[i].Name)
		}
	}
	return f.Hint("look at the endpoint machines, and at their addresses in the configuration")
}

// asks reports whether an endpoint answers: to an echo request, or by its probe.
func asks(ctx context.Context, e Endpoint, at netip.Addr) bool {
	if e.Probe != "" {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", e.Probe)
		if err != nil {
			return false
		}
		conn.Close()
		return true
	}
	conn, err := echo.Open(at)
	if err != nil {
		return false
	}
	stop := run.OnDone(ctx, func() { conn.Close() })
	defer stop()
	defer conn.Close()
	if _, err := conn.Write([]byte{0, 1}); err != nil {
		return false
	}
	n, err := conn.Read(make([]byte, 64))
	return err == nil && n > 0
}
