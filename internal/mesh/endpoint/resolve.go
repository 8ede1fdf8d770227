// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/run"
)

// hosts lists the names of servers, each once; addresses are none.
func hosts(texts []Server) []string {
	var out []string
	for _, t := range texts {
		if host, addr, _, why := t.split(); why == "" && !addr.IsValid() && !slices.Contains(out, host) {
			out = append(out, host)
		}
	}
	return out
}

// resolve keeps what the names of servers mean: again every few minutes, after a change,
// and with a backoff while one cannot be resolved.
func (e *Endpoints) resolve(ctx context.Context) error {
	for n := 0; ; n++ {
		wait := endpointResolve
		if e.resolveAll(ctx) {
			n = 0
		} else {
			wait = run.Backoff(n, endpointBackoff, rand.Float64())
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		case <-e.names:
			timer.Stop()
			n = 0
		}
	}
}

// resolveAll resolves all names side by side, and reports whether it could. Each counts
// as soon as it is known.
func (e *Endpoints) resolveAll(ctx context.Context) bool {
	e.mu.Lock()
	names := hosts(e.texts)
	for name := range e.found {
		if !slices.Contains(names, name) {
			delete(e.found, name)
		}
	}
	e.mu.Unlock()
	good := make([]bool, len(names))
	g := run.NewGroup(ctx)
	for i, name := range names {
		g.Do(func(ctx context.Context) { good[i] = e.resolveOne(ctx, name) })
	}
	_ = g.Wait() // what failed is in the table
	return !slices.Contains(good, false)
}

// resolveOne resolves a name. What was known of it counts on while it fails: a resolver
// may be away while the server is not.
func (e *Endpoints) resolveOne(ctx context.Context, name string) bool {
	inner, cancel := context.WithTimeout(ctx, endpointName)
	defer cancel()
	addrs, err := e.p.Resolver.LookupNetIP(inner, "ip", name)
	if err == nil && len(addrs) == 0 {
		err = errors.New("it has no address")
	}
	if ctx.Err() != nil {
		return false
	}
	e.mu.Lock()
	f := e.found[name]
	if err != nil {
		f.why = err.Error()
		if f.failing.IsZero() {
			f.failing = time.Now()
		}
	} else {
		f = found{addrs: sorted(addrs)}
	}
	e.found[name] = f
	e.mu.Unlock()
	ring(e.wake)
	return err == nil
}

// sorted is what counts of an answer, in an order that does not turn with each one.
func sorted(addrs []netip.Addr) []netip.Addr {
	var out []netip.Addr
	for _, a := range addrs {
		if a = a.Unmap(); !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out[:min(len(out), endpointAddresses)]
}
