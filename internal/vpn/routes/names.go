// SPDX-License-Identifier: Apache-2.0

package routes

import (
	"cmp"
	"context"
	"net/netip"

	"github.com/tombolo-io/tombolo/internal/base/run"
)

// located is where an endpoint is now.
type located struct {
	endpoint       int
	machine, probe netip.Addr // not valid: not known
	why            string     // one of them is not
}

// resolve finds where the endpoints are, again and again. It has a goroutine of its own: a slow answer of DNS keeps
// neither probes nor the route waiting, nor what another name means.
func (r *Router) resolve(ctx context.Context, found chan<- located) error {
	for {
		g := run.NewGroup(ctx)
		for i, e := range r.cfg.Endpoints {
			g.Do(func(ctx context.Context) {
				select {
				case found <- r.find(ctx, i, e):
				case <-ctx.Done():
				}
			})
		}
		_ = g.Wait() // they return nothing
		if !run.Wait(ctx, resolveEvery) {
			return nil
		}
	}
}

// find is where an endpoint is: its machine, which has to be of the range's family, and its probe.
func (r *Router) find(ctx context.Context, i int, e Endpoint) located {
	fits := func(a netip.Addr) bool { return a.Is4() == r.cfg.Range.Addr().Is4() && !r.cfg.Range.Contains(a) }
	out, probeWhy := located{endpoint: i, machine: e.Addr, probe: e.Probe.Addr}, ""
	if !out.machine.IsValid() {
		out.machine, out.why = r.lookup(ctx, e.Host, fits)
	}
	switch {
	case e.Probe.Name == "":
	case e.Probe.Name == e.Host:
		out.probe = out.machine
	default:
		out.probe, probeWhy = r.lookup(ctx, e.Probe.Name, netip.Addr.IsValid)
	}
	out.why = cmp.Or(out.why, probeWhy)
	return out
}

// lookup is what a name means: the smallest address that fits, so that an answer in another order changes nothing.
func (r *Router) lookup(ctx context.Context, host string, fits func(netip.Addr) bool) (first netip.Addr, why string) {
	ctx, cancel := context.WithTimeout(ctx, resolveWait)
	defer cancel()
	addrs, err := r.host.lookup(ctx, "ip", host)
	if err != nil {
		return first, err.Error()
	}
	for _, a := range addrs {
		if a = a.Unmap(); fits(a) && (!first.IsValid() || a.Less(first)) {
			first = a
		}
	}
	if !first.IsValid() {
		return first, "its name has no address of the range's family"
	}
	return first, ""
}
