// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"net/netip"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	marked "github.com/tombolo-io/tombolo/internal/base/socket"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/mesh/endpoint"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel"
	"github.com/tombolo-io/tombolo/internal/mesh/netcheck"
	"github.com/tombolo-io/tombolo/internal/mesh/routing"
	"github.com/tombolo-io/tombolo/internal/mesh/topology"
)

// parts are what a running mesh consists of beside attach, each made of those before it. What they
// have to tell goes to the loop.
type parts struct {
	routing *routing.Routing
	policy  fileStamps // of what governs routing, as it was before it was first read
	way
	beside *way // with IPsec: WireGuard, for peers without; nil: none
}

// make takes the port, asks whether the kernel's state can be put into force, and makes
// the link only then.
func (m *Mesh) make(ctx context.Context, k *kernel.Kernel, names kernel.Names) (_ *parts, err error) {
	p := &parts{}
	s := *m.state.Load()
	o := m.cfg.Options
	o.Overlay6 = s.overlay.Prefix
	p.routing, err = routing.New(routing.Parts{
		Kernel: k, Watch: func() (routing.Watch, error) { return kernel.NewWatch(names) },
		Able:  func() []*fault.Fault { return able(ctx, &m.cfg) },
		Local: m.around, Options: o, Keep: m.cfg.Keep,
		Peers: func(peers topology.Peers) { m.ask(tunneled{peers}) }, Caller: m.caller, Log: m.log, Metrics: m.o.Reg,
	})
	if err != nil {
		return nil, err
	}
	p.policy = stampsOf(s.set.Policies)
	cluster := s.world.cluster
	if err := p.routing.Reload(s.set.Policies, cluster); err != nil {
		return nil, err
	}
	s.reads = &cluster
	p.policy.add(p.routing.Governing())
	s.world = m.gather(nil, s.world.result)
	in := s.plan(time.Now())
	previous, err := m.names.prepare(k, names, func() error { return p.routing.Prepare(in) })
	if err != nil {
		return nil, err
	}
	if err := s.untaken(); err != nil {
		return nil, err
	}
	if err := m.names.keep(names, previous); err != nil {
		return nil, err
	}
	m.state.Store(&s)
	if err := m.connect(ctx, p); err != nil {
		return nil, err
	}
	return p, nil
}

func (m *Mesh) endpointParts(s endpoint.Socket, metrics *telemetry.Endpoint) endpoint.Parts {
	var static []netip.AddrPort
	for _, e := range m.cfg.Announce.Endpoints {
		static = append(static, e.Addr)
	}
	return endpoint.Parts{
		Resolver: marked.Resolver(m.cfg.Options.Marks.Own), Socket: s, Static: static, PortMapping: m.cfg.PortMapping,
		Servers: func() []endpoint.Server {
			return m.state.Load().servers(m.attach.Addresses())
		},
		Without: func() []string { return m.state.Load().set.Without },
		Overlay: func() []netip.Prefix { return m.state.Load().inside() },
		Needed:  func() bool { return len(m.state.Load().peers) > 0 },
		Relays:  func() []netcheck.Relay { return relaysOf(m.attach) },
		Moved:   func() { ring(m.moved) }, Changed: func() { ring(m.look) },
		Log: m.log, Metrics: metrics,
	}
}

// caller is the identity of a peer in its certificate, once a hub has vouched for it.
func (m *Mesh) caller(p topology.Peer) string {
	if m.state.Load().world.certified[p.ID] == (vouched{p.Key, p.Node}) {
		return m.attach.Named(p.Node)
	}
	return ""
}
