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
	asks   func(ctx context.Context, at netip.Addr, probe netip.AddrPort) bool
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
	o := listener.Operations{Health: listener.Health{Metrics: r.reg, Log: r.log, Ready: r.unready}}
	if err := o.Listen(ctx, r.cfg.HealthListen, ""); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.Close()) }()
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
	r.start(g)
	return o.Until(ctx, g, g.Stop)
}

// start begins to find the endpoints, and to keep the route with one that answers.
func (r *Router) start(g *run.Group) {
	found := make(chan located)
	g.Go("names", func(ctx context.Context) error { return r.resolve(ctx, found) })
	g.Go("route", func(ctx context.Context) error { return r.loop(ctx, found) })
}

// loop asks the endpoints, and keeps the route with one that answers. It does not wait for names, but for the first
// ones until the first tick: who is preferred has it at once then.
func (r *Router) loop(ctx context.Context, found <-chan located) error {
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	unknown := len(r.cfg.Endpoints)
	var looked time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case one := <-found:
			if r.place(one) {
				looked = time.Time{}
			}
			if unknown--; unknown != 0 {
				continue
			}
		case <-tick.C:
		}
		r.probe(ctx)
		if ctx.Err() != nil {
			return nil
		}
		now := time.Now()
		look := now.Sub(looked) >= lookEvery
		if look {
			looked = now
		}
		r.decide(now, look)
	}
}

// place takes over where an endpoint is, and reports whether that has changed. What a name meant counts on while it is
// not resolved.
func (r *Router) place(one located) (changed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, had := r.cfg.Endpoints[one.endpoint], r.all[one.endpoint]
	k := had
	if one.machine.IsValid() {
		k = r.atLocked(e, k, one.machine)
	}
	if one.probe.IsValid() {
		k.probe = netip.AddrPortFrom(one.probe, e.Probe.Port)
	}
	if one.why != "" {
		if had.why != one.why {
			r.log.Warn("an endpoint is not found", "endpoint", e.Name, telemetry.AttrReason, one.why)
		}
		k.why = one.why
	}
	r.all[one.endpoint] = k
	return k.addr != had.addr || k.link != had.link || k.self != had.self
}

// atLocked is an endpoint at an address, if that can be a next hop. The caller holds mu.
func (r *Router) atLocked(e Endpoint, k known, at netip.Addr) known {
	if k.addr != at {
		k = known{addr: at, probe: k.probe}
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
		if k.link == "" || e.Probe.Port != 0 && !k.probe.IsValid() {
			continue
		}
		g.Do(func(ctx context.Context) {
			ctx, cancel := context.WithTimeout(ctx, probeWait)
			defer cancel()
			if !r.host.asks(ctx, k.addr, k.probe) {
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

// asks reports whether an endpoint answers: by its probe, if it has one, or to an echo request.
func asks(ctx context.Context, at netip.Addr, probe netip.AddrPort) bool {
	if probe.IsValid() {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", probe.String())
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
