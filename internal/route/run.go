// SPDX-License-Identifier: Apache-2.0

package route

import (
	"context"
	"errors"
	"strings"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/listener"
	"github.com/tombolo-io/tombolo/internal/base/plan"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/route/netstack"
)

// Run routes until ctx ends; then it takes no new connections and gives those that live the drain timeout, which the
// end of hard cuts short. What it changed in the kernel goes with it.
func (r *Route) Run(ctx, hard context.Context) (err error) {
	o := listener.Operations{Health: listener.Health{Metrics: r.reg, Log: r.log, Ready: r.ready}, API: r.api()}
	if err := o.Listen(ctx, r.cfg.HealthListen, AdminSocket(r.cfg.RunDir)); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.Close()) }()
	r.healthAt = o.HealthAt()
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
	for _, c := range r.cfg.Clusters {
		g.Do(func(ctx context.Context) { r.watch(ctx, r.doors[c.Name]) })
	}
	r.log.Info("routing", "link", r.cfg.Link, "table", r.cfg.RouteTable, "ranges", r.cfg.Table.Ranges())
	var gone error
	err = o.Until(ctx, g, func() {
		r.drain(hard)
		gone = apply(k, plan.State{})
		cancel()
	})
	return errors.Join(err, gone)
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
