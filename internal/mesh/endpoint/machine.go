// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"cmp"
	"context"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel/machine"
	"github.com/tombolo-io/tombolo/internal/mesh/nat"
	"github.com/tombolo-io/tombolo/internal/mesh/portmap"
)

// kernel is the machine that this runs on.
type kernel struct{}

func (kernel) Addresses() ([]nat.Address, error)                       { return machine.Addresses() }
func (kernel) Defaults() ([]machine.Default, error)                    { return machine.Defaults() }
func (kernel) Gateway() (netip.Addr, netip.Addr, error)                { return machine.Gateway() }
func (kernel) Watch(ctx context.Context, tell func()) error            { return machine.Watch(ctx, tell) }
func (kernel) Sleeps(ctx context.Context, t func(time.Duration)) error { return machine.Sleeps(ctx, t) }

// What may be at fault beside servers and routers.
const (
	whatAddresses = "addresses of this machine"
	whatSleep     = "noticing that this machine slept"
)

// Problem is something that is tried again.
type Problem struct {
	What  string    `json:"what"`
	Why   string    `json:"why"`
	Since time.Time `json:"since"`
}

func (e *Endpoints) problem(what string, err error, since time.Time) {
	e.p.Log.Warn("this is tried again", "what", what, telemetry.AttrReason, err)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.problems[what] = Problem{what, err.Error(), since}
}

func (e *Endpoints) solved(what string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.problems, what)
}

// again calls what should not end until ctx does.
func (e *Endpoints) again(ctx context.Context, what string, fn func(context.Context) error) error {
	var since time.Time
	for n := 0; ; n++ {
		begin := time.Now()
		err := fn(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if since.IsZero() || time.Since(begin) > limit.BackoffReset {
			n, since = 0, time.Now()
		}
		if err != nil {
			e.problem(what, err, since)
		}
		if !run.Wait(ctx, run.Backoff(n, endpointBackoff, rand.Float64())) {
			return nil
		}
	}
}

// follow looks at the machine whenever the kernel says that something changed.
func (e *Endpoints) follow(ctx context.Context) error {
	return e.again(ctx, whatAddresses, func(ctx context.Context) error {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		var bad error
		err := e.p.Machine.Watch(ctx, func() {
			if bad = e.look(); bad != nil {
				stop()
				return
			}
			e.solved(whatAddresses)
			ring(e.wake)
		})
		return cmp.Or(bad, err)
	})
}

func (e *Endpoints) sleeps(ctx context.Context) error {
	return e.again(ctx, whatSleep, func(ctx context.Context) error {
		return e.p.Machine.Sleeps(ctx, func(d time.Duration) {
			e.p.Metrics.Sleeps.Inc()
			e.p.Log.Info("this machine slept", "for", d)
			err := e.look() // otherwise the watch reports what is new, later
			e.mu.Lock()
			e.slept = true
			e.mu.Unlock()
			if err != nil {
				e.problem(whatAddresses, err, time.Now())
			}
			ring(e.wake)
		})
	})
}

// look reads what the kernel knows.
func (e *Endpoints) look() error {
	addrs, err := e.p.Machine.Addresses()
	if err != nil {
		return err
	}
	routes, err := e.p.Machine.Defaults()
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.addrs, e.routes = addrs, routes
	return nil
}

// movement reports whether the machine stands elsewhere than at the last look, or slept.
// Bridges of containers come and go without end: only what others may try counts.
func (e *Endpoints) movement() bool {
	slept := e.slept
	changed := shifted(e.addrsBefore, e.addrs, nat.Choice{Without: e.without, Overlay: e.overlay}) ||
		!slices.Equal(e.routesBefore, e.routes)
	e.slept, e.addrsBefore, e.routesBefore = false, e.addrs, e.routes
	if changed {
		e.p.Metrics.MachineChanges.Inc()
		e.p.Log.Info("the addresses or default routes of this machine changed")
	}
	return changed || slept
}

// shifted compares the addresses that others may try, as sets.
func shifted(before, after []nat.Address, c nat.Choice) bool {
	a, _ := nat.Own(before, c)
	b, _ := nat.Own(after, c)
	slices.SortFunc(a, netip.Addr.Compare)
	slices.SortFunc(b, netip.Addr.Compare)
	return !slices.Equal(a, b)
}

// keep holds a port of the router.
func (e *Endpoints) keep(ctx context.Context) error {
	defer e.asked(nat.PortMapping{}) // it is taken away by then
	return portmap.Keeper{
		Ways: e.p.Ways, Port: e.p.Socket.Port(), Router: e.gateway, Asked: e.asked,
		Tell: func(m nat.PortMapping) {
			e.p.Log.Info("the router was asked for a port", "by", m.Method, "external", m.External, "tried", m.Tried)
		},
	}.Run(ctx, e.router)
}

func (e *Endpoints) gateway() (portmap.Router, error) {
	gw, own, err := e.p.Machine.Gateway()
	return portmap.Router{Gateway: gw, Own: own}, err
}

// asked takes what the router said.
func (e *Endpoints) asked(m nat.PortMapping) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.mapping, e.mappedAt = m, time.Now()
	held := 0.0
	if m.Method != "" {
		held = 1
	}
	e.p.Metrics.PortMapping.Set(held)
	close(e.round)
	e.round = make(chan struct{})
	ring(e.wake)
}

// askRouter has the router asked where its mapping may be gone: this machine moved, or a
// NAT maps otherwise, as one does that was restarted. A NAT that flaps is not followed.
func (e *Endpoints) askRouter(moved, rebound bool, now time.Time) {
	if (moved || rebound) && e.routerDue.IsZero() {
		e.routerDue = now
		if next := e.rungAt.Add(endpointApart); rebound && !moved && next.After(now) {
			e.routerDue = next
		}
	}
	if !e.routerDue.IsZero() && !now.Before(e.routerDue) {
		e.rungAt, e.routerDue = now, time.Time{}
		ring(e.router)
	}
}
