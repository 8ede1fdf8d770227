// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-io/tombolo/internal/access/audit"
	"github.com/tombolo-io/tombolo/internal/access/authz"
	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/access/policyfile"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/kube"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/edge/tenant"
	"github.com/tombolo-io/tombolo/internal/edge/tenantfile"
	"github.com/tombolo-io/tombolo/internal/stream/splice"
)

// Options are what an edge needs beside its configuration.
type Options struct {
	Log   *slog.Logger
	Reg   *prometheus.Registry
	Audit *audit.Writer // nil: no records
	From  *Handover     // nil: nobody hands over ports
	Now   func() time.Time
}

// Edge is a public front door.
type Edge struct {
	cfg       Config
	settings  atomic.Pointer[Reloadable]
	log       *slog.Logger
	reg       *prometheus.Registry
	now       func() time.Time
	metrics   *telemetry.Edge
	audit     *audit.Writer
	refusals  audit.Refusals
	tenants   *tenant.Table
	files     *tenantfile.Files // of tenants
	feeds     []*feed           // of other sources of tenants
	table     *authz.Table
	policies  *policyfile.Files
	upstreams *upstreams
	counts    *counts
	splicer   *splice.Splicer
	draining  atomic.Bool
	began     time.Time
	unguarded atomic.Int64 // ways, as they were counted last
	portsAt   []string     // where Run listens; set before the admin socket is served
	healthAt  string
	from      *Handover
	listening chan []net.Listener // of Run, once
}

// New makes an edge that has read nothing and listens nowhere.
func New(cfg Config, o Options) *Edge {
	if o.Now == nil {
		o.Now = time.Now
	}
	e := &Edge{
		cfg: cfg, log: o.Log, reg: o.Reg, now: o.Now, audit: o.Audit, from: o.From, tenants: tenant.NewTable(),
		table: authz.NewTable(), upstreams: newUpstreams(o.Now, cfg.Hubs), counts: newCounts(), splicer: splice.New(),
		began: o.Now(), listening: make(chan []net.Listener, 1),
	}
	e.settings.Store(&cfg.Reloadable)
	e.metrics = telemetry.NewEdge(o.Reg, telemetry.EdgeReadings{
		Tenants:   func() float64 { return float64(e.tenants.Len()) },
		Tunnels:   func() float64 { return float64(e.counts.total()) },
		Ejected:   func() float64 { return float64(len(e.upstreams.Failing())) },
		Unguarded: func() float64 { return float64(e.unguarded.Load()) },
	})
	e.policies = policyfile.New(policyfile.Options{
		Paths: func() []string { return e.settings.Load().Policies }, Some: true, Table: e.table, Log: o.Log, Now: o.Now,
		Reloaded: func(err error) { e.metrics.PolicyReloads.WithLabelValues(outcome(err)).Inc() },
	})
	book := tenantfile.NewBook(e.tenants)
	reloaded := func(err error) { e.metrics.TenantReloads.WithLabelValues(outcome(err)).Inc() }
	e.files = tenantfile.New(tenantfile.Options{
		Paths: func() []string { return e.settings.Load().Tenants }, Book: book, Hubs: names(cfg.Hubs), Log: o.Log,
		Now: o.Now, Reloaded: reloaded,
	})
	follow := func(source string, follow func(context.Context, *tenantfile.Feed) error) {
		e.feeds = append(e.feeds, &feed{follow: follow, Feed: tenantfile.NewFeed(tenantfile.FeedOptions{
			Source: source, Book: book, Hubs: names(cfg.Hubs), Log: o.Log, Now: o.Now, Reloaded: reloaded,
		})})
	}
	for _, h := range cfg.Hubs {
		if h.Tenants != nil {
			follow("hub "+h.Name, (&hubFeed{door: e.upstreams.hubs[h.Name], log: o.Log}).follow)
		}
	}
	if k := cfg.Kubernetes; k != nil {
		access := func() (kube.Access, error) { return kube.Load(k.Kubeconfig, os.Getenv) }
		from := kube.NewTenants(kube.NewClientOf(access, nil), o.Log, k.Namespace)
		follow("Kubernetes", func(ctx context.Context, into *tenantfile.Feed) error { return from.Run(ctx, objects{into}) })
	}
	return e
}

// Reload takes over what may change while the edge runs, and names the rest in the log.
func (e *Edge) Reload(next Config) error {
	if err := e.policies.Judge(next.Policies); err != nil {
		return err
	}
	if fixed := fixedChanges(e.cfg, next); len(fixed) > 0 {
		e.log.Warn("these settings change with the next start", "settings", fixed)
	}
	e.settings.Store(&next.Reloadable)
	e.policies.Moved()
	e.files.Moved()
	return errors.Join(e.policies.Load(), e.files.Load())
}

// judge asks the policy. Without any, a tenant that is protected is closed.
func (e *Edge) judge(q policy.Request) authz.Ruling {
	r := e.table.Decide(q)
	if !r.Judged {
		r.Verdict = policy.Decide(q)
	}
	return r
}

func outcome(err error) string {
	if err == nil {
		return telemetry.Outcome("")
	}
	return telemetry.Outcome(fault.From(err).Code)
}

// sourceOf is what counts as one source: an IPv4 address, or the /64 that one subscriber has.
func sourceOf(a netip.Addr) netip.Prefix {
	bits := 32
	if a = a.Unmap(); a.Is6() {
		bits = 64
	}
	p, err := a.WithZone("").Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return p
}
