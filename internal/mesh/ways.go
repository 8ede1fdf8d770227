// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/mesh/attach"
	"github.com/tombolo-io/tombolo/internal/mesh/endpoint"
	"github.com/tombolo-io/tombolo/internal/mesh/peering"
	"github.com/tombolo-io/tombolo/internal/mesh/relay"
	"github.com/tombolo-io/tombolo/internal/mesh/tunnel"
)

// way is an engine with its socket, and what finds the paths to the peers that it carries.
type way struct {
	carrier   carrier
	endpoints *endpoint.Endpoints
	peering   *peering.Peering
}

// ways are those of this node, the one of mesh.engine first.
func (p *parts) ways() []*way {
	if p.beside == nil {
		return []*way{&p.way}
	}
	return []*way{&p.way, p.beside}
}

// connect makes what carries packets, and what finds the ways for them.
func (m *Mesh) connect(ctx context.Context, p *parts) (err error) {
	data := [2]*peering.Datapath{peering.NewDatapath(m.attach), peering.NewDatapath(m.attach)}
	main, err := openCarrier(ctx, m.cfg, m.log, data[0])
	if err != nil {
		return err
	}
	var other carrier
	defer func() {
		if err == nil {
			return
		}
		if other.link != nil {
			err = errors.Join(err, other.Abandon())
		}
		err = errors.Join(err, main.Abandon())
	}()
	if m.cfg.besides() {
		if main, other, err = openBeside(ctx, m.cfg, m.log, data[1], main); err != nil {
			return err
		}
	}
	metrics := telemetry.NewEndpoint(m.o.Reg)
	err = m.way(&p.way, main, peering.Parts{Encrypts: m.cfg.encrypts(), Datapath: data[0]}, metrics)
	if err != nil || !m.cfg.besides() {
		return err
	}
	p.beside = &way{}
	return m.way(p.beside, other, peering.Parts{Encrypts: member.WireGuard, Datapath: data[1], Beside: p.peering}, metrics)
}

// way makes what finds the paths for a carrier; of is what differs from another one's.
func (m *Mesh) way(w *way, c carrier, of peering.Parts, metrics *telemetry.Endpoint) (err error) {
	key := m.state.Load().key
	if of.Private, err = key.private(); err != nil {
		return err
	}
	w.carrier = c
	if w.endpoints, err = endpoint.New(m.endpointParts(c.socket, metrics)); err != nil {
		return err
	}
	of.Signer, of.Socket, of.Engine, of.Traffic, of.Endpoints = key.certificate.signer, c.socket, c, c, w.called
	of.Changed, of.Lost, of.Log, of.Metrics = func() { ring(m.look) }, w.endpoints.Suspect, m.log, m.o.Reg
	if w.peering, err = peering.New(of); err != nil {
		return err
	}
	if !c.Made() {
		return nil // its peers go on until this run knows them
	}
	return w.peering.Set(nil) // the device has its key
}

// called are the endpoints that a call names.
func (w *way) called() []netip.AddrPort {
	var out []netip.AddrPort
	for _, e := range w.endpoints.List() {
		out = append(out, e.Addr)
	}
	return out
}

// run has a way work in a group; link names its link in errors.
func (w *way) run(g *run.Group, link string) {
	g.Go("socket", func(ctx context.Context) error {
		return w.carrier.Run(ctx, tunnel.Handlers{
			Probe: w.peering.Probe,
			STUN:  func(from netip.AddrPort, _ netip.Addr, b []byte) { w.endpoints.STUN(from, b) },
		})
	})
	g.Go("paths", w.peering.Run)
	g.Go("endpoints", w.endpoints.Run)
	g.Go("link", func(ctx context.Context) error {
		select {
		case <-w.carrier.Done():
			return fault.New(fault.CodeClash, "the link "+link+" was taken away").
				Hint("find out what removed it; the mesh makes a new link when it starts again")
		case <-ctx.Done():
			return nil
		}
	})
}

// run has all of them work.
func (p *parts) run(g *run.Group, hubs *attach.Attach, link string) {
	for i, w := range p.ways() {
		w.run(g, []string{link, besideLink(link)}[i])
	}
	last := p.ways()[len(p.ways())-1].peering // which knows the other one
	g.Go("hubs", func(ctx context.Context) error {
		return hubs.Run(ctx, relay.Handlers{Receive: last.Relayed, Absent: func(hub, name string) {
			for _, w := range p.ways() {
				w.peering.Absent(hub, name)
			}
		}})
	})
}

// close ends all of them, that of mesh.engine last.
func (p *parts) close(keep bool) (err error) {
	for _, w := range slices.Backward(p.ways()) {
		err = errors.Join(err, w.carrier.Close(keep))
	}
	return err
}

// set gives each way the peers that it carries.
func (p *parts) set(all []peering.Peer) (err error) {
	for i, w := range p.ways() {
		err = errors.Join(err, w.peering.Set(shareOf(all, p.beside != nil, i > 0)))
	}
	return err
}

// shareOf are the peers as a way of this node gets them: of those whom the other way carries it knows the ranges alone.
// What neither carries the first one refuses, with the reason.
func shareOf(all []peering.Peer, two, second bool) []peering.Peer {
	out := slices.Clone(all)
	for i := range out {
		out[i].Elsewhere = two && out[i].Engine.Same(member.WireGuard) != second
	}
	return out
}

// want has a peer be reached, though nobody sends to it.
func (p *parts) want(id string) {
	for _, w := range p.ways() {
		w.peering.Want(id)
	}
}

// healths are what routing looks at of all peers.
func (p *parts) healths() (out []peering.Health) {
	for _, w := range p.ways() {
		out = append(out, w.peering.Healths()...)
	}
	return out
}

// reached are the endpoints of this node: those of WireGuard first, since a node with the kernel's WireGuard cannot
// find out by probes which of them are not.
func (p *parts) reached() (out []member.Endpoint) {
	for _, w := range slices.Backward(p.ways()) {
		out = append(out, w.endpoints.List()...)
	}
	return out
}

// drops are what was dropped between the network and the link, of all ways.
func (p *parts) drops() (out []tunnel.Drop) {
	for _, w := range p.ways() {
		for _, d := range w.carrier.Drops() {
			if i := slices.IndexFunc(out, func(o tunnel.Drop) bool { return o.Reason == d.Reason }); i >= 0 {
				out[i].Packets += d.Packets
			} else {
				out = append(out, d)
			}
		}
	}
	return out
}

// tunnelDropped is what the tunnel has dropped, for each reason that there is.
func tunnelDropped(drops []tunnel.Drop) (out []Dropped) {
	for _, d := range drops {
		out = append(out, Dropped{d.Reason, d.Packets})
	}
	return out
}
