// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/discovery/seal"
	"github.com/tombolo-io/tombolo/internal/mesh/endpoint"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel/wireguard"
	"github.com/tombolo-io/tombolo/internal/mesh/meshconf"
	"github.com/tombolo-io/tombolo/internal/mesh/peering"
	"github.com/tombolo-io/tombolo/internal/mesh/tunnel"
)

// carrier is what carries packets: a link with WireGuard behind it, and its socket.
type carrier interface {
	peering.Engine
	peering.Socket
	endpoint.Socket
	Run(ctx context.Context) error
	Done() <-chan struct{} // the link is gone
	Offloads() []tunnel.Offload
	Drops() []tunnel.Drop  // nil: the kernel has them, in the counters of its link
	Close(keep bool) error // with the link, but for one that works on by itself and is kept
	Abandon() error        // what a start that failed has made
}

// userspace is WireGuard in this process.
type userspace struct {
	*tunnel.Engine
	socket *tunnel.Socket
	tun    *tunnel.Tun
}

func (u userspace) Send(to netip.AddrPort, local netip.Addr, b []byte) error {
	return u.socket.Send(to, local, b)
}

func (u userspace) SendWhole(to netip.AddrPort, local netip.Addr, b []byte) error {
	return u.socket.SendWhole(to, local, b)
}

func (u userspace) Has(a netip.Addr) bool         { return u.socket.Has(a) }
func (u userspace) Port() uint16                  { return u.socket.Port() }
func (u userspace) Run(ctx context.Context) error { return u.socket.Run(ctx) }
func (u userspace) Abandon() error                { return u.Close(false) }

func (u userspace) Offloads() []tunnel.Offload {
	return slices.Concat(u.socket.Offloads(), u.tun.Offloads())
}

func (u userspace) Drops() []tunnel.Drop { return u.socket.Drops(u.tun) }

// Close ends the link in any case: there is nothing behind it any more.
func (u userspace) Close(bool) error { return errors.Join(u.Engine.Close(), u.socket.Close()) }

// inKernel is the kernel's WireGuard.
type inKernel struct{ *wireguard.Device }

// Offloads are those of the other engine: the kernel does all this without being asked.
func (inKernel) Offloads() []tunnel.Offload {
	return tunnel.NoOffloads("not applicable: the kernel's WireGuard does without")
}

func (inKernel) Drops() []tunnel.Drop { return nil }

// carry makes the link by the engine that is chosen.
func (m *Mesh) carry(ctx context.Context) (carrier, error) {
	if m.cfg.Engine == meshconf.Kernel {
		return m.carryInKernel()
	}
	return m.carryHere(ctx)
}

func (m *Mesh) carryHere(ctx context.Context) (_ carrier, err error) {
	o := m.cfg.Options
	// A killed run of the other engine has left its link, with our name and our port. What is
	// planned fails closed without it.
	if was, err := wireguard.Leave(wireguard.System{}, o.Link); err != nil {
		return nil, err
	} else if was {
		m.log.Info("the link of the kernel's WireGuard is removed: this node runs its own now", "link", o.Link)
	}
	socket, err := tunnel.OpenSocket(ctx, tunnel.SocketConfig{
		Port: m.cfg.Port, Mark: o.Marks.Own, Offloads: m.cfg.Offloads, Probe: m.peering.Probe,
		STUN: func(from netip.AddrPort, _ netip.Addr, b []byte) {
			if p := m.parts.Load(); p != nil {
				p.endpoints.STUN(from, b)
			}
		},
	})
	if err != nil {
		return nil, err
	}
	tun, err := tunnel.OpenTun(ctx, o.Link, o.MTU, m.cfg.Offloads)
	if err != nil {
		return nil, errors.Join(err, socket.Close())
	}
	engine, err := tunnel.Open(ctx, tunnel.Parts{Socket: socket, Tun: tun, Relay: m.peering, Log: m.log, Wake: m.peering.Wake})
	if err != nil {
		return nil, errors.Join(err, tun.Close(), socket.Close())
	}
	return userspace{engine, socket, tun}, nil
}

func (m *Mesh) carryInKernel() (carrier, error) {
	control, err := wireguard.Dial()
	if err != nil {
		return nil, err
	}
	o := m.cfg.Options
	d, err := wireguard.Open(
		wireguard.Settings{Link: o.Link, MTU: o.MTU, Port: m.cfg.Port, Mark: o.Marks.Own},
		wireguard.Parts{Control: control, Links: wireguard.System{}, Log: m.log, Wake: m.peering.Wake},
	)
	if err != nil {
		return nil, errors.Join(err, control.Close())
	}
	return inKernel{d}, nil
}

// able says what this process and kernel lack for the engine that is chosen.
func (m *Mesh) able() []*fault.Fault {
	if m.cfg.Engine != meshconf.Kernel {
		return kernel.Able(true)
	}
	out := kernel.Able(false)
	if f := wireguard.Able(); f != nil {
		out = append(out, f)
	}
	return out
}

// probes reports whether this node speaks the path protocol: the kernel's WireGuard has
// its socket for itself.
func (m *Mesh) probes() bool { return m.cfg.Engine != meshconf.Kernel }

// asked are the STUN servers that are asked by the socket of WireGuard.
func (m *Mesh) asked() []endpoint.Server {
	if !m.probes() {
		return nil
	}
	return m.stun()
}

// observed are the addresses at which hubs and discovery see this node, with WireGuard's
// own port. A NAT that keeps ports, as most do while nobody else has them, lets peers in
// there; of another one nobody tells the kernel's WireGuard the port.
func (m *Mesh) observed(port uint16) []seal.Endpoint {
	var all []netip.Addr
	for _, h := range m.attach.Status().Hubs {
		all = append(all, h.Observed.Addr())
	}
	return outer(append(all, m.finder.Observed()...), m.inside(), port)
}

// lookOutside has this node announced anew when others see it elsewhere.
func (m *Mesh) lookOutside() {
	if m.probes() {
		return
	}
	now := m.observed(m.parts.Load().carrier.Port())
	m.mu.Lock()
	same := slices.Equal(now, m.outside)
	m.outside = now
	m.mu.Unlock()
	if !same {
		ring(m.say)
	}
}

// outer are those that others can reach: public ones, or within a provider's NAT.
func outer(all []netip.Addr, overlay []netip.Prefix, port uint16) []seal.Endpoint {
	var out []seal.Endpoint
	for _, a := range all {
		a = a.Unmap().WithZone("")
		e := seal.Endpoint{At: netip.AddrPortFrom(a, port), Kind: seal.KindMapped}
		if !a.IsValid() || !a.IsGlobalUnicast() || a.IsPrivate() || within(overlay, a) || slices.Contains(out, e) {
			continue
		}
		out = append(out, e)
	}
	return out
}
