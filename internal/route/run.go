// SPDX-License-Identifier: Apache-2.0

package route

import (
	"context"
	"errors"
	"net"
	"strings"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/listener"
	"github.com/tombolo-io/tombolo/internal/base/plan"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/route/netstack"
)

// Run routes until ctx ends; then it takes no new connections and gives those that live the drain timeout, which the
// end of hard cuts short. What it changed in the kernel goes with it.
func (r *Route) Run(ctx, hard context.Context) (err error) {
	open, err := r.listen(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, open.close()) }()
	k, err := r.openKernel(r.cfg.names())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, k.Close()) }()
	if err := r.check(ctx, k); err != nil {
		return err
	}
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	// From here on the machine is changed.
	dev, lost, err := r.openTun(inner, r.cfg)
	if err != nil {
		return err
	}
	r.lost = lost
	stack, err := netstack.New(inner, dev, netstack.Options{MTU: tunMTU, Handle: r.handle,
		Dropped: func(why netstack.Drop) { r.metrics.Dropped.WithLabelValues(string(why)).Inc() }})
	if err != nil {
		return errors.Join(err, dev.Close())
	}
	r.live = run.NewGroup(inner)
	r.names.group = run.NewGroup(inner)
	if err := apply(k, r.cfg.want()); err != nil {
		stack.Close()
		return errors.Join(err, apply(k, plan.State{}), dev.Close())
	}
	r.applied.Store(true)
	g := run.NewGroup(inner)
	g.Go("TUN device", stack.Run)
	g.Go("health", func(ctx context.Context) error { return r.health().Serve(ctx, open.health) })
	g.Go("admin socket", func(ctx context.Context) error {
		shed := func() { r.log.Debug("a silent connection of the admin socket was closed for a newer one") }
		return r.adminServer().Serve(ctx, listener.Few(open.admin, socketConns, shed))
	})
	for _, c := range r.cfg.Clusters {
		g.Do(func(ctx context.Context) { r.watch(ctx, r.doors[c.Name]) })
	}
	r.log.Info("routing", "link", r.cfg.Link, "table", r.cfg.RouteTable, "ranges", r.cfg.Table.Ranges())
	over, ended := context.WithCancel(inner) // the group has failed
	defer ended()
	g.Do(func(ctx context.Context) { <-ctx.Done(); ended() })
	select {
	case <-ctx.Done():
	case <-over.Done():
	}
	r.drain(hard)
	gone := apply(k, plan.State{})
	cancel()
	return errors.Join(g.Wait(), gone)
}

// drain waits until the connections that live have ended, but not for long.
func (r *Route) drain(hard context.Context) {
	r.draining.Store(true)
	bound, stop := context.WithTimeout(hard, r.cfg.Drain)
	defer stop()
	if n := r.counts.total(); n > 0 {
		r.log.Info("draining", "connections", n, "bound", r.cfg.Drain)
	}
	if !r.live.WaitContext(bound) {
		r.log.Warn("the drain is over: live connections are cut", "connections", r.counts.total())
	}
	r.live.Stop()
	r.live.Wait()
	r.names.group.Stop()
	r.names.group.Wait()
}

// check refuses a start that could not work, or would harm others, before anything is changed.
func (r *Route) check(ctx context.Context, k state) error {
	var all []*fault.Fault
	for _, c := range r.cfg.Clusters {
		if _, _, err := r.doors[c.Name].certificate(); err != nil {
			all = append(all, fault.From(err))
		}
	}
	all = append(all, covered(r.cfg.Table, r.around(ctx, r.cfg))...)
	used, err := k.InUse()
	if err != nil {
		all = append(all, fault.From(err))
	}
	if used {
		all = append(all, fault.New(fault.CodeKernelClash, "link "+r.cfg.Link).Whyf("another program has it open").
			Hint("stop the other 'tombolo route', or choose another link, table and rule"))
	}
	return joined(append(all, k.Check(r.cfg.want())...))
}

// joined is one fault that lists several.
func joined(all []*fault.Fault) error {
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	}
	var list strings.Builder
	for _, f := range all {
		list.WriteString("\n  " + f.Explain())
	}
	return fault.New(all[0].Code, "it cannot start here").Whyf("%s", list.String())
}

// apply makes the kernel as it is wanted: also what a killed process left is taken over.
func apply(k state, want plan.State) error {
	have, err := k.Observe()
	if err != nil {
		return err
	}
	if len(want.Links) == 0 {
		want.Links = have.Links // the link goes with its file
	}
	return k.Apply(plan.Diff(have, want))
}

// opened is all on which it listens.
type opened struct{ health, admin net.Listener }

func (o opened) close() error { return errors.Join(unlessClosed(o.health), unlessClosed(o.admin)) }

func unlessClosed(ln net.Listener) error {
	if ln == nil {
		return nil
	}
	if err := ln.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

func (r *Route) listen(ctx context.Context) (o opened, err error) {
	if o.admin, err = adminListener(r.cfg.RunDir); err != nil {
		return o, err
	}
	if o.health, err = listener.Listen(ctx, "healthListen", r.cfg.HealthListen); err != nil {
		return o, errors.Join(err, o.admin.Close())
	}
	r.healthAt = o.health.Addr().String()
	return o, nil
}

func adminListener(runDir string) (net.Listener, error) {
	ln, err := listener.ListenUnix("runDir", AdminSocket(runDir))
	if err != nil {
		return nil, err // not a nil in an interface
	}
	return ln, nil
}

func (r *Route) health() listener.Health {
	return listener.Health{Metrics: r.reg, Log: r.log, Ready: r.ready}
}

// adminServer serves the API with bounds on what its callers may take.
func (r *Route) adminServer() listener.HTTP {
	return listener.HTTP{Handler: r.api(), Header: limit.RequestHeader, Log: r.log, Conn: listener.WithFew}
}
