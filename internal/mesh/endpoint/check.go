// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"context"
	"crypto/rand"
	"net/netip"
	"slices"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/mesh/nat"
	"github.com/tombolo-io/tombolo/internal/mesh/netcheck"
	"github.com/tombolo-io/tombolo/internal/mesh/portmap"
)

// Netcheck checks the network over the mesh's own socket, while Run runs; one check after
// another. The router is asked unless it maps a port already.
func (e *Endpoints) Netcheck(ctx context.Context) (nat.Report, error) {
	if err := e.checks.Acquire(ctx); err != nil {
		return nat.Report{}, err
	}
	defer e.checks.Release()
	o := netcheck.Options{
		Relays: e.p.Relays(), Beside: e.p.Beside,
		Send: func(to netip.AddrPort, b []byte) error { return e.p.Socket.Send(to, netip.Addr{}, b) },
	}
	if _, err := rand.Read(o.Seed[:]); err != nil {
		return nat.Report{}, err
	}
	for _, a := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		if e.p.Socket.Has(a) {
			o.Sockets = append(o.Sockets, netip.AddrPortFrom(a, e.p.Socket.Port()))
		}
	}
	if e.keeping {
		o.Router = e.routerNow
	}
	e.mu.Lock()
	o.Own, o.Servers = slices.Clone(e.own), slices.Clone(e.servers)
	c := netcheck.New(o)
	e.checking = c
	e.mu.Unlock()
	defer func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.checking = nil
	}()
	return c.Run(ctx), nil
}

// routerNow is what the router says: what is kept, or an answer from now on.
func (e *Endpoints) routerNow(ctx context.Context) nat.PortMapping {
	e.mu.Lock()
	held, round := e.mapping, e.round
	e.mu.Unlock()
	if held.Method != "" {
		return held
	}
	ring(e.router)
	select {
	case <-round:
	case <-ctx.Done():
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.mappedAt.IsZero() {
		return nat.PortMapping{Tried: []nat.Tried{{Method: "any", Why: "no answer yet"}}}
	}
	return e.mapping
}

// Standalone is a check of the network of a machine on which no mesh runs.
type Standalone struct {
	Port        uint16 // 0: any; the mesh's own shows more
	Servers     []Server
	Relays      []netcheck.Relay
	PortMapping bool // the router is asked
	Without     []string

	Resolver Resolver         // nil: the system's
	Machine  Machine          // nil: the kernel
	Ways     []portmap.Mapper // nil: gateway.Mappers
}

// Check checks the network over a socket of its own.
func Check(ctx context.Context, s Standalone) (nat.Report, error) {
	p := Parts{Resolver: s.Resolver, Machine: s.Machine, Ways: s.Ways}
	p.fill()
	o := netcheck.Options{Relays: s.Relays, Beside: netcheck.OpenBeside}
	if _, err := rand.Read(o.Seed[:]); err != nil {
		return nat.Report{}, err
	}
	all, err := p.Machine.Addresses()
	if err != nil {
		return nat.Report{}, err
	}
	o.Own, _ = nat.Own(all, nat.Choice{Without: s.Without})
	o.Servers = resolved(ctx, p.Resolver, s.Servers)
	var c *netcheck.Check
	ready := make(chan struct{}) // nobody writes to us before we ask
	socket, err := netcheck.Open(ctx, s.Port, func(from netip.AddrPort, b []byte) {
		<-ready
		c.Handle(from, b)
	})
	if err != nil {
		return nat.Report{}, err
	}
	o.Send, o.Sockets = socket.Send, socket.Local()
	port := uint16(0)
	for _, at := range o.Sockets {
		if at.Addr().Is4() {
			port = at.Port()
		}
	}
	if s.PortMapping {
		gw, own, _ := p.Machine.Gateway() // without one, the check says so
		o.Router = func(ctx context.Context) nat.PortMapping {
			return portmap.Check(ctx, p.Ways, portmap.Router{Gateway: gw, Own: own}, port)
		}
	}
	c = netcheck.New(o)
	close(ready)
	report := c.Run(ctx)
	return report, socket.Close()
}

// resolved turns texts into servers, once.
func resolved(ctx context.Context, r Resolver, texts []Server) []nat.Server {
	texts = texts[:min(len(texts), limit.STUNServers)]
	e := &Endpoints{p: Parts{Resolver: r}, wake: make(chan struct{}, 1), found: map[string]found{}, texts: texts}
	e.resolveAll(ctx)
	ok := func(at netip.AddrPort) bool { return useless(at, nil) == "" }
	return arrange(texts, e.found, ok)
}
