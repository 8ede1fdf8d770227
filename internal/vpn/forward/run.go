// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/listener"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/stream/splice"
)

// Options are what a Forwarder gets from its owner.
type Options struct {
	Log *slog.Logger
	Reg *prometheus.Registry
}

// Forwarder is a running 'tombolo vpn forward'.
type Forwarder struct {
	cfg      Config
	log      *slog.Logger
	reg      *prometheus.Registry
	metrics  *telemetry.VPNForward
	table    table
	mu       sync.Mutex // guards clusters and live
	clusters map[netip.Addr]Cluster
	live     *run.Group // what connections belong to; nil before it runs
	splicer  *splice.Splicer
	up, down splice.Counter
	bound    atomic.Bool
	draining atomic.Bool
	dial     func(ctx context.Context, network, target string) (net.Conn, error)
}

// New makes a Forwarder. It opens nothing yet.
func New(cfg Config, o Options) *Forwarder {
	f := &Forwarder{cfg: cfg, clusters: cfg.Clusters, log: o.Log, reg: o.Reg, splicer: splice.New(),
		dial: (&net.Dialer{}).DialContext}
	f.table.most, f.table.each = connections, perCluster
	f.metrics = telemetry.NewVPNForward(o.Reg, telemetry.VPNForwardReadings{
		Open:     func() float64 { return float64(f.table.opened()) },
		Clusters: func() float64 { return float64(f.table.clusters()) },
		Up:       func() float64 { return float64(f.up.Load()) },
		Down:     func() float64 { return float64(f.down.Load()) },
	})
	return f
}

// Reload serves other clusters. Everything else changes with the next start.
func (f *Forwarder) Reload(next Config) {
	if next.Listen != f.cfg.Listen || next.Protocol != f.cfg.Protocol || next.HealthListen != f.cfg.HealthListen ||
		next.Log != f.cfg.Log {
		f.log.Warn("these settings change with the next start", "settings", "all but clusters")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.clusters = next.Clusters
	if f.live != nil {
		f.table.set(f.live.Context(), f.clusters)
		f.log.Info("clusters loaded", "clusters", len(f.clusters))
	}
}

// begin serves the clusters that there are now.
func (f *Forwarder) begin(g *run.Group) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.live = g
	f.table.set(g.Context(), f.clusters)
}

// Run carries until ctx ends. Connections end with it: no tunnel ends by itself, and its client goes on by another
// endpoint in seconds.
func (f *Forwarder) Run(ctx, _ context.Context) error {
	o := listener.Operations{Health: listener.Health{Metrics: f.reg, Log: f.log, Ready: f.unready}}
	if err := o.Listen(ctx, f.cfg.HealthListen, ""); err != nil {
		return err
	}
	g := run.NewGroup(context.WithoutCancel(ctx))
	f.begin(g)
	serve := f.serveTCP
	if f.cfg.Protocol == udp {
		serve = f.serveUDP
	}
	g.Go("clusters", func(ctx context.Context) error { return serve(ctx, g) })
	return o.Until(ctx, g, func() {
		f.draining.Store(true)
		g.Stop()
	})
}

// unready says why it is not ready.
func (f *Forwarder) unready() *fault.Fault {
	switch {
	case f.draining.Load():
		return fault.New(fault.CodeDraining, "the forwarder is shutting down")
	case !f.bound.Load():
		return fault.Newf(fault.CodeVPNDown, "the address %s is not there yet", f.cfg.Listen.Addr()).
			Hint("start 'tombolo mesh' on this machine, and compare its address in 'tombolo mesh status'")
	}
	return nil
}

// bind opens the port as soon as the address is there.
func (f *Forwarder) bind(ctx context.Context, open func() error) error {
	for first := true; ; first = false {
		err := open()
		switch {
		case err == nil:
			f.bound.Store(true)
			f.log.Info("waiting for clusters", "listen", f.cfg.Listen, "protocol", f.cfg.Protocol)
			return nil
		case !errors.Is(err, syscall.EADDRNOTAVAIL):
			return err
		case first:
			f.log.Info("waiting for the address in the mesh", "listen", f.cfg.Listen)
		}
		if !run.Wait(ctx, bindEvery) {
			return nil
		}
	}
}

// refused counts and tells that something is not carried.
func (f *Forwarder) refused(from net.Addr, why *fault.Fault) {
	f.metrics.Connections.WithLabelValues(string(why.Code)).Inc()
	f.log.Warn("a connection is not carried", telemetry.AttrPeer, from, telemetry.AttrCode, why.Code,
		telemetry.AttrReason, why.Error())
}

// reach connects to the server of a cluster, by the addresses that its name has now.
func (f *Forwarder) reach(p place) (net.Conn, *fault.Fault) {
	ctx, cancel := context.WithTimeout(p.ctx, dialWait)
	defer cancel()
	conn, err := f.dial(ctx, f.cfg.Protocol, p.Target)
	if err == nil {
		return conn, nil
	}
	code := fault.CodeDialUnreachable
	switch {
	case errors.As(err, new(*net.DNSError)):
		code = fault.CodeDialDNS
	case errors.Is(err, syscall.ECONNREFUSED):
		code = fault.CodeDialRefused
	case run.Ended(ctx) != nil, errors.Is(err, syscall.ETIMEDOUT):
		code = fault.CodeDialTimeout
	}
	return nil, fault.Newf(code, "the server of cluster %s, %s, cannot be reached", p.Name, p.Target).Because(err)
}
