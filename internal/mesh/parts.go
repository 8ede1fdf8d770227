// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"errors"
	"net/netip"
	"sync/atomic"

	"github.com/tombolo-io/tombolo/internal/kernel"
	"github.com/tombolo-io/tombolo/internal/mesh/endpoint"
	"github.com/tombolo-io/tombolo/internal/mesh/routing"
	"github.com/tombolo-io/tombolo/internal/tell"
	"github.com/tombolo-io/tombolo/internal/topology"
)

type atomicParts struct{ atomic.Pointer[parts] }

// parts are what a running mesh consists of beside attach and peering.
type parts struct {
	carrier   carrier
	routing   *routing.Routing
	endpoints *endpoint.Endpoints
}

// make takes the port, asks whether the kernel's state can be put into force, and makes
// the link only then.
func (m *Mesh) make(ctx context.Context, k *kernel.Kernel, names kernel.Names) (_ *parts, err error) {
	p := &parts{}
	o := m.cfg.Options
	m.mu.Lock()
	o.Overlay6 = m.overlay.Prefix
	m.mu.Unlock()
	p.routing, err = routing.New(routing.Parts{
		Kernel: k, Watch: func() (routing.Watch, error) { return kernel.NewWatch(names) }, Able: m.able,
		Local:   func() (topology.Local, error) { return routing.Local(o.Link, routing.ResolverFiles()) },
		Options: o, Keep: m.cfg.Keep, Peers: m.planned, Caller: m.caller, Log: m.log, Metrics: m.reg,
	})
	if err != nil {
		return nil, err
	}
	if err := m.govern(p.routing); err != nil {
		return nil, err
	}
	if err := m.networks(); err != nil {
		return nil, err
	}
	result, _ := m.finder.Result()
	if err := p.routing.Prepare(m.input(result)); err != nil {
		return nil, err
	}
	if p.carrier, err = m.carry(ctx); err != nil {
		return nil, err
	}
	p.endpoints, err = endpoint.New(m.endpointParts(p.carrier))
	if err != nil {
		return nil, errors.Join(err, p.carrier.Abandon())
	}
	m.peering.Use(p.carrier, p.carrier)
	return p, m.peering.Set(nil) // the device has its key: a rotation that goes on begins a second one
}

func (m *Mesh) endpointParts(socket endpoint.Socket) endpoint.Parts {
	var static []netip.AddrPort
	for _, e := range m.cfg.Announce.Endpoints {
		static = append(static, e.At)
	}
	return endpoint.Parts{
		Socket: socket, Servers: m.asked, Static: static, Without: m.without, PortMapping: m.cfg.PortMapping,
		Overlay: m.inside, Needed: m.needed, Relays: m.relays,
		Moved: m.moved, Changed: func() { ring(m.say) }, Log: m.log, Metrics: tell.NewEndpoint(m.reg),
	}
}

// moved says that this machine's addresses or routes are others, or that it slept.
func (m *Mesh) moved() {
	m.peering.Moved()
	m.attach.Again()
	if p := m.parts.Load(); p != nil {
		p.routing.Moved()
	}
	ring(m.look)
	ring(m.say)
}
