// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"errors"
	"net/netip"
	"sync/atomic"

	marked "github.com/tombolo-io/tombolo/internal/base/socket"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/mesh/endpoint"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel"
	"github.com/tombolo-io/tombolo/internal/mesh/routing"
	"github.com/tombolo-io/tombolo/internal/mesh/topology"
)

type atomicParts struct{ atomic.Pointer[parts] }

// parts are what a running mesh consists of beside attach and peering.
type parts struct {
	carrier   carrier
	routing   *routing.Routing
	endpoints *endpoint.Endpoints
	policy    fileStamps // of what governs routing, as it was before it was first read
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
		Local:   m.around,
		Options: o, Keep: m.cfg.Keep, Peers: m.planned, Caller: m.caller, Log: m.log, Metrics: m.reg,
	})
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	p.policy = stampsOf(m.set.Policies)
	m.mu.Unlock()
	if err := m.govern(p.routing); err != nil {
		return nil, err
	}
	p.policy.add(p.routing.Governing())
	if err := m.networks(); err != nil {
		return nil, err
	}
	result, _ := m.finder.Result()
	in := m.input(result)
	former, err := m.prepared(k, names, func() error { return p.routing.Prepare(in) })
	if err != nil {
		return nil, err
	}
	if err := m.untaken(); err != nil {
		return nil, err
	}
	if err := m.apply(names, former); err != nil {
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
	return p, m.peering.Set(nil) // the device has its key
}

// untaken refuses a start with a range that another member has, which this node did not
// have when it ran last: with what it has had it starts again, whatever others say. Nobody knows us by a key yet: nothing of it was routed to us.
func (m *Mesh) untaken() error {
	m.mu.Lock()
	shared, before := m.set.Shared, m.ranges.known.Own
	m.mu.Unlock()
	if shared {
		return nil
	}
	return routing.Taken(topology.Taken(m.against(m.facts()), before))
}

// around is what this machine itself must reach in clear.
func (m *Mesh) around() (topology.Local, error) {
	o := m.cfg.Options
	return routing.Around{Link: o.Link, Mark: o.Marks.Own, Resolvers: routing.ResolverFiles(), Services: m.needs()}.Local()
}

func (m *Mesh) endpointParts(socket endpoint.Socket) endpoint.Parts {
	var static []netip.AddrPort
	for _, e := range m.cfg.Announce.Endpoints {
		static = append(static, e.At)
	}
	return endpoint.Parts{
		Resolver: marked.Resolver(m.cfg.Options.Marks.Own),
		Socket:   socket, Servers: m.asked, Static: static, Without: m.without, PortMapping: m.cfg.PortMapping,
		Overlay: m.inside, Needed: m.needed, Relays: m.relays,
		Moved: m.moved, Changed: func() { ring(m.say) }, Log: m.log, Metrics: telemetry.NewEndpoint(m.reg),
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
