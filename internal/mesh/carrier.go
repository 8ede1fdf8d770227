// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"errors"
	"log/slog"
	"slices"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/mesh/endpoint"
	"github.com/tombolo-io/tombolo/internal/mesh/ipsectunnel"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel/ipsec"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel/wireguard"
	"github.com/tombolo-io/tombolo/internal/mesh/loopback"
	"github.com/tombolo-io/tombolo/internal/mesh/meshconf"
	"github.com/tombolo-io/tombolo/internal/mesh/peering"
	"github.com/tombolo-io/tombolo/internal/mesh/rawudp"
	"github.com/tombolo-io/tombolo/internal/mesh/tunnel"
)

// carrier is what carries packets: WireGuard, the link before it and the socket behind it.
type carrier struct {
	peering.Engine
	peering.Traffic
	socket
	link
	counters
}

// socket is the one that WireGuard has.
type socket interface {
	peering.Socket
	endpoint.Socket
}

// link is the machine's way into the mesh.
type link interface {
	Run(ctx context.Context, to tunnel.Handlers) error
	Done() <-chan struct{} // the link is gone
	Close(keep bool) error // with the link, but for one that works on by itself and is kept
	Abandon() error        // what a start that failed has made
	Made() bool            // false: it was there before, and works on with what it has
}

// counters are what the status shows of a carrier.
type counters interface {
	Offloads() []tunnel.Offload
	Drops() []tunnel.Drop                    // nil: the kernel has them, in the counters of its link
	Peers() map[member.Key]ipsectunnel.State // with IPsec
	Use() ipsectunnel.Use                    // with IPsec
}

// userspace is WireGuard in this process.
type userspace struct {
	*tunnel.Engine
	socket *tunnel.Socket
	tun    *tunnel.Tun
}

func (u userspace) Run(ctx context.Context, to tunnel.Handlers) error { return u.socket.Run(ctx, to) }
func (u userspace) Abandon() error                                    { return u.Close(false) }
func (userspace) Made() bool                                          { return true }

func (u userspace) Offloads() []tunnel.Offload {
	return slices.Concat(u.socket.Offloads(), u.tun.Offloads())
}

func (u userspace) Drops() []tunnel.Drop { return u.socket.Drops(u.tun) }

// Close ends the link in any case: there is nothing behind it any more.
func (u userspace) Close(bool) error { return errors.Join(u.Engine.Close(), u.socket.Close()) }

// inKernel is the kernel's WireGuard. It has its socket for itself, at whose port others meet our probes, too; and it
// reaches peers behind a relay by the loopback link.
type inKernel struct {
	*wireguard.Device
	probes *rawudp.Socket
	relay  *relayed
}

// relayed is an engine of the kernel with its way to a relay.
type relayed struct {
	*loopback.Engine
	socket *loopback.Socket
}

// openRelayed has an engine know relays.
//
//	port: the engine's
func openRelayed(ctx context.Context, k loopback.Kernel, port uint16, data *peering.Datapath, mark string) (
	*relayed, error) {
	s, err := loopback.Open(ctx, port)
	if err != nil {
		return nil, err
	}
	return &relayed{loopback.New(k, s, data, mark), s}, nil
}

// Run looks at the link, reads probes, and passes on what goes by a relay.
func (k inKernel) Run(ctx context.Context, to tunnel.Handlers) error {
	g := run.NewGroup(ctx)
	g.Go("WireGuard's link", k.Device.Run)
	g.Go("probes at WireGuard's port", func(ctx context.Context) error { return k.probes.Run(ctx, to) })
	g.Go("WireGuard by a relay", k.relay.Run)
	return g.Wait()
}

// Close ends it; a link that is kept works on, but by no relay.
func (k inKernel) Close(keep bool) error {
	return errors.Join(k.probes.Close(), k.relay.socket.Close(), k.Device.Close(keep))
}

// Abandon is Close after a start that failed.
func (k inKernel) Abandon() error {
	return errors.Join(k.probes.Close(), k.relay.socket.Close(), k.Device.Abandon())
}

// Offloads are those of the other engine: the kernel does all this without being asked.
func (inKernel) Offloads() []tunnel.Offload {
	return tunnel.NoOffloads("not applicable: the kernel's WireGuard does without")
}

func (inKernel) Drops() []tunnel.Drop { return nil }

func (inKernel) Peers() map[member.Key]ipsectunnel.State { return nil }

func (userspace) Peers() map[member.Key]ipsectunnel.State { return nil }

func (inKernel) Use() ipsectunnel.Use { return ipsectunnel.Use{} }

func (userspace) Use() ipsectunnel.Use { return ipsectunnel.Use{} }

// openCarrier makes the link by the engine that is chosen.
func openCarrier(ctx context.Context, cfg Config, log *slog.Logger, data *peering.Datapath) (carrier, error) {
	switch cfg.engine() {
	case meshconf.Kernel:
		return openInKernel(ctx, cfg, log, data)
	case meshconf.IPsec:
		return openIPsec(ctx, cfg, log, data)
	}
	return openUserspace(ctx, cfg, log, data)
}

// leave removes the link that an earlier run of another engine has left: with our name and our port, and of a kind that
// this one cannot take over. What is planned fails closed without it.
func leave(link string, log *slog.Logger, others ...func() (bool, error)) error {
	for _, other := range others {
		if was, err := other(); err != nil {
			return err
		} else if was {
			log.Info("what an earlier run with another engine had is removed", "link", link)
		}
	}
	return nil
}

func leaveWireGuard(link string) func() (bool, error) {
	return func() (bool, error) { return wireguard.Leave(wireguard.System{}, link) }
}

func leaveIPsec(link string) func() (bool, error) {
	return func() (bool, error) {
		left, err := ipsec.Leave(link)
		return left.Any(), err
	}
}

func openUserspace(ctx context.Context, cfg Config, log *slog.Logger, data *peering.Datapath) (carrier, error) {
	o := cfg.Options
	if err := leave(o.Link, log, leaveWireGuard(o.Link), leaveIPsec(o.Link)); err != nil {
		return carrier{}, err
	}
	u, err := newUserspace(ctx, cfg, o.Link, log, data)
	if err != nil {
		return carrier{}, err
	}
	return carrier{u.Engine, u.Engine, u.socket, u, u}, nil
}

func newUserspace(ctx context.Context, cfg Config, link string, log *slog.Logger, data *peering.Datapath) (u userspace,
	err error) {
	o := cfg.Options
	socket, err := tunnel.OpenSocket(ctx, tunnel.SocketConfig{Port: cfg.Port, Mark: o.Marks.Own, Offloads: cfg.Offloads})
	if err != nil {
		return u, err
	}
	tun, err := tunnel.OpenTun(ctx, link, o.MTU, cfg.Offloads)
	if err != nil {
		return u, errors.Join(err, socket.Close())
	}
	engine, err := tunnel.Open(ctx, tunnel.Parts{Socket: socket, Tun: tun, Relay: data, Log: log, Wake: data.Wake})
	if err != nil {
		return u, errors.Join(err, tun.Close(), socket.Close())
	}
	return userspace{engine, socket, tun}, nil
}

func openInKernel(ctx context.Context, cfg Config, log *slog.Logger, data *peering.Datapath) (carrier, error) {
	o := cfg.Options
	if err := leave(o.Link, log, leaveIPsec(o.Link)); err != nil {
		return carrier{}, err
	}
	control, err := wireguard.Dial()
	if err != nil {
		return carrier{}, err
	}
	d, err := wireguard.Open(
		wireguard.Settings{Link: o.Link, MTU: o.MTU, Port: cfg.Port, Mark: o.Marks.Own},
		wireguard.Parts{Control: control, Links: wireguard.System{}, Log: log, Wake: data.Wake},
	)
	if err != nil {
		return carrier{}, errors.Join(err, control.Close())
	}
	k := inKernel{Device: d}
	if k.relay, err = openRelayed(ctx, d, d.Port(), data, ""); err != nil {
		return carrier{}, errors.Join(err, d.Abandon())
	}
	k.probes, err = rawudp.Open(ctx, rawudp.Settings{Port: d.Port(), Mark: o.Marks.Own})
	if err != nil {
		return carrier{}, errors.Join(err, k.relay.socket.Close(), d.Abandon())
	}
	return carrier{k.relay, k.relay, k.probes, k, k}, nil
}

// ableInKernel says what this process and kernel lack for the kernel's WireGuard.
func ableInKernel() *fault.Fault {
	if f := wireguard.Able(); f != nil {
		return f
	}
	return rawudp.Able()
}

// able says what this process and kernel lack for the engine that is chosen, and for the one beside it.
func able(ctx context.Context, cfg *Config) []*fault.Fault {
	own := ableInKernel
	switch cfg.engine() {
	case meshconf.Kernel:
	case meshconf.IPsec:
		own = func() *fault.Fault { return ableIPsec(ctx, cfg) }
	default:
		return kernel.Able(true)
	}
	out := kernel.Able(cfg.besides())
	if f := own(); f != nil {
		out = append(out, f)
	}
	return out
}
