// SPDX-License-Identifier: Apache-2.0

package route

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/plan"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel"
	"github.com/tombolo-io/tombolo/internal/mesh/tunnel"
	"github.com/tombolo-io/tombolo/internal/route/answer"
	"github.com/tombolo-io/tombolo/internal/route/names"
	"github.com/tombolo-io/tombolo/internal/route/netstack"
	"github.com/tombolo-io/tombolo/internal/stream/splice"
)

// state is what is changed in the kernel.
type state interface {
	InUse() (bool, error)
	Check(want plan.State) []*fault.Fault
	Observe() (plan.State, error)
	Apply(steps []plan.Step) error
	Close() error
}

// Options are what a Route needs beside its configuration.
type Options struct {
	Log *slog.Logger
	Reg *prometheus.Registry
	Now func() time.Time // nil: the clock
}

// Route is a running 'tombolo route'.
type Route struct {
	cfg      Config
	log      *slog.Logger
	reg      *prometheus.Registry
	now      func() time.Time
	began    time.Time
	settings atomic.Pointer[Reloadable]
	draining atomic.Bool
	applied  atomic.Bool
	lost     func() float64
	healthAt string

	metrics *telemetry.Route
	counts  *counts
	doors   map[string]*door // by cluster
	splicer *splice.Splicer
	live    *run.Group // of connections
	names   *resolver

	openKernel func(kernel.Names) (state, error)
	openTun    func(context.Context, Config) (netstack.Device, func() float64, error)
	around     func(context.Context, Config) []place
}

// New makes a Route. It changes nothing yet.
func New(cfg Config, o Options) *Route {
	if o.Now == nil {
		o.Now = time.Now
	}
	r := &Route{
		cfg: cfg, log: o.Log, reg: o.Reg, now: o.Now, began: o.Now(), counts: newCounts(), splicer: splice.New(),
		doors: map[string]*door{}, lost: func() float64 { return 0 },
		openKernel: func(n kernel.Names) (state, error) { return kernel.New(n) },
		openTun:    openTun, around: around,
	}
	r.settings.Store(&cfg.Reloadable)
	r.metrics = telemetry.NewRoute(o.Reg, telemetry.RouteReadings{
		Open: func() float64 { return float64(r.counts.total()) },
		Lost: func() float64 { return r.lost() },
	})
	r.names = &resolver{at: cfg.Resolver,
		table: names.Table{Zones: cfg.Names, Here: cfg.Table.Here,
			There: func(here netip.Addr) (string, netip.Addr, bool) {
				to, there, ok := cfg.Table.There(here)
				return to.Cluster, there, ok
			}}, log: o.Log, told: r.metrics,
		upstreams: map[upstreamKey]*upstream{}, said: map[string]string{},
		open: func(ctx context.Context, z names.Zone, network string) (net.Conn, error) {
			return r.doors[z.Cluster].open(ctx, network, z.Server.String())
		}}
	for _, c := range cfg.Clusters {
		r.doors[c.Name] = newDoor(c, cfg.Table, o.Now, func(err error) { r.metrics.Hubs.WithLabelValues(outcome(err)).Inc() })
	}
	return r
}

func openTun(ctx context.Context, cfg Config) (netstack.Device, func() float64, error) {
	t, err := tunnel.OpenTun(ctx, cfg.Link, tunMTU, tunnel.Offloads{TunTSO: true})
	if fault.Has(err, fault.CodeClash) { // the mesh's code, which opens TUN devices too
		clash := *fault.From(err)
		clash.Code = fault.CodeKernelClash
		return nil, nil, &clash
	}
	if err != nil {
		return nil, nil, err
	}
	return t, func() float64 { return float64(t.Lost.Load()) }, nil
}

// Reload takes over what may change while it runs, and names the rest in the log.
func (r *Route) Reload(next Config) {
	if fixed := fixedChanges(r.cfg, next); len(fixed) > 0 {
		r.log.Warn("these settings change with the next start", "settings", fixed)
	}
	r.settings.Store(&next.Reloadable)
}

// attempt is one connection that a caller asks for.
type attempt struct {
	cluster      string
	from, to, at netip.AddrPort // at: there
	network      netstack.Network
	begun        time.Time
}

// handle dials where a connection leads, and answers its SYN.
func (r *Route) handle(ctx context.Context, c *netstack.Coming) {
	a := attempt{from: c.From, to: c.To, network: c.Network, begun: r.now()}
	if r.names.serves(c.To) {
		r.resolve(ctx, c, a)
		return
	}
	to, there, ok := r.cfg.Table.There(c.To.Addr())
	if !ok { // the link's own, or one that a packet was sent to by hand
		r.refuse(ctx, c, a, fault.Newf(fault.CodeDialUnreachable, "%s is in no range", c.To))
		return
	}
	a.cluster, a.at = to.Cluster, netip.AddrPortFrom(there, c.To.Port())
	if r.draining.Load() {
		r.refuse(ctx, c, a, fault.New(fault.CodeDraining, "routed mode is shutting down"))
		return
	}
	settings := r.settings.Load()
	if full := r.counts.enter(*settings, a.from.Addr(), a.cluster); full != nil {
		r.refuse(ctx, c, a, full)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, settings.DialTimeout)
	far, err := r.doors[a.cluster].open(ctx, string(a.network), a.at.String())
	cancel()
	if err != nil {
		r.counts.leave(a.from.Addr(), a.cluster)
		r.refuse(ctx, c, a, fault.From(err))
		return
	}
	end := splice.Net(far)
	near, err := c.Accept()
	if err != nil {
		end.Reset(splice.ResetCode(fault.CodeDialCanceled))
		r.counts.leave(a.from.Addr(), a.cluster)
		r.told(ctx, a, fault.New(fault.CodeDialCanceled, "the caller gave up").Because(err), answer.Silence)
		return
	}
	r.metrics.Dials.WithLabelValues(telemetry.Outcome(""), "accept").Inc()
	r.metrics.Took.Observe(r.now().Sub(a.begun).Seconds())
	r.log.Debug("connected", telemetry.AttrCluster, a.cluster, "network", a.network, telemetry.AttrTarget, a.at,
		telemetry.AttrPeer, a.from)
	idle := settings.IdleTimeout
	if a.network != netstack.TCP {
		idle = min(idle, limit.DatagramIdle)
	}
	live, done := r.live.Begin()
	r.splicer.Start(live, near, end, splice.Options{
		Idle: idle, Up: r.metrics.Up, Down: r.metrics.Down,
	}, func(splice.Result) {
		r.counts.leave(a.from.Addr(), a.cluster)
		done()
	})
}

// resolve takes the questions of a caller.
func (r *Route) resolve(ctx context.Context, c *netstack.Coming, a attempt) {
	if full := r.counts.enter(*r.settings.Load(), a.from.Addr(), ""); full != nil {
		r.refuse(ctx, c, a, full)
		return
	}
	defer r.counts.leave(a.from.Addr(), "")
	near, err := c.Accept()
	if err != nil {
		return // the caller gave up
	}
	asking, done := r.names.group.Begin() // not of those for which a drain waits
	defer done()
	r.names.serve(asking, near, c.Network)
}

// refuse answers a SYN with what its caller is to see of a fault.
func (r *Route) refuse(ctx context.Context, c *netstack.Coming, a attempt, f *fault.Fault) {
	with := answer.Of(f.Code)
	c.Refuse(with)
	r.told(ctx, a, f, with)
}

// told counts and logs what did not become a connection.
func (r *Route) told(ctx context.Context, a attempt, f *fault.Fault, with answer.Answer) {
	r.metrics.Dials.WithLabelValues(telemetry.Outcome(f.Code), with.String()).Inc()
	r.metrics.Took.Observe(r.now().Sub(a.begun).Seconds())
	level := slog.LevelWarn
	if f.Code == fault.CodeDialCanceled {
		level = slog.LevelDebug
	}
	r.log.Log(ctx, level, "connection refused", telemetry.AttrCluster, a.cluster, "network", a.network,
		telemetry.AttrTarget, a.at, telemetry.AttrPeer, a.from, "asked", a.to, "answer", with,
		telemetry.AttrCode, f.Code, telemetry.AttrReason, f.Error())
}

func outcome(err error) string {
	if err == nil {
		return telemetry.Outcome("")
	}
	return telemetry.Outcome(fault.From(err).Code)
}
