// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/base/run"
	marked "github.com/tombolo-io/tombolo/internal/base/socket"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/mesh/disco"
	"github.com/tombolo-io/tombolo/internal/mesh/espudp"
	"github.com/tombolo-io/tombolo/internal/mesh/ipsectunnel"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel/ipsec"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel/wireguard"
	"github.com/tombolo-io/tombolo/internal/mesh/keyconn"
	"github.com/tombolo-io/tombolo/internal/mesh/meshconf"
	"github.com/tombolo-io/tombolo/internal/mesh/peering"
	"github.com/tombolo-io/tombolo/internal/mesh/rawesp"
	"github.com/tombolo-io/tombolo/internal/mesh/tunnel"
)

// overIPsec is the kernel's IPsec, with keys that nodes agree on over the socket of ESP in UDP.
type overIPsec struct {
	*ipsectunnel.Engine
	socket *espudp.Socket
	port   *keyconn.Port
	raw    *rawesp.Socket // nil: ESP is in UDP always
	relay  *relayed
	made   bool
}

// Run reads the socket and keeps the tunnels.
func (o overIPsec) Run(ctx context.Context, to tunnel.Handlers) error {
	g := run.NewGroup(ctx)
	g.Go("the port of ESP", func(ctx context.Context) error { return o.socket.Run(ctx, to) })
	g.Go("IPsec", o.Engine.Run)
	g.Go("IPsec by a relay", o.relay.Run)
	return g.Wait()
}

// Close ends it all; states that are kept work on once the port is open again.
func (o overIPsec) Close(keep bool) error {
	err := errors.Join(o.port.Close(), o.Engine.Close(keep), o.relay.socket.Close(), o.socket.Close())
	if o.raw != nil {
		err = errors.Join(err, o.raw.Close())
	}
	return err
}

// Made reports whether this run has made the link.
func (o overIPsec) Made() bool { return o.made }

// Abandon is Close after a start that failed: a link that was there before stays.
func (o overIPsec) Abandon() error { return o.Close(!o.made) }

// Offloads are those of the userspace engine: the kernel does all this without being asked.
func (overIPsec) Offloads() []tunnel.Offload {
	return tunnel.NoOffloads("not applicable: the kernel's IPsec does without")
}

func (o overIPsec) Drops() []tunnel.Drop { return o.socket.Drops() }

// connections are those of keyconn. The port is made after the engine, which says who may connect.
type connections struct{ *keyconn.Port }

func (c *connections) Dial(ctx context.Context, to netip.AddrPort, local netip.Addr, client *tls.Config) (
	ipsectunnel.Conn, error) {
	conn, err := c.Port.Dial(ctx, to, local, client)
	if err != nil {
		return nil, err // not a nil of another type
	}
	return conn, nil
}

func (c *connections) Run(ctx context.Context, handle func(context.Context, ipsectunnel.Conn)) error {
	return c.Port.Run(ctx, func(ctx context.Context, conn *keyconn.Conn) { handle(ctx, conn) })
}

// ableIPsec says what this process and kernel lack for IPsec, and whether another program has its port: what an earlier
// run has left to work on is removed for a start that can succeed alone.
func ableIPsec(ctx context.Context, cfg *Config) *fault.Fault {
	if f := ipsec.Able(ctx, cfg.besides()); f != nil {
		return f
	}
	s, err := espudp.Open(ctx, espudp.Settings{Port: cfg.ESP.Port, Mark: cfg.Options.Marks.Own})
	switch {
	case err == nil:
		err = s.Close()
	case fault.Has(err, fault.CodeAddressBusy) && wireguard.Holds("", cfg.ESP.Port):
		return nil
	}
	return fault.From(err)
}

func openIPsec(ctx context.Context, cfg Config, log *slog.Logger, data *peering.Datapath) (_ carrier, err error) {
	o := cfg.Options
	numbers, err := readNumbers(cfg.StateDir)
	if err != nil {
		return carrier{}, err
	}
	var opened []func() error
	defer func() {
		if err != nil {
			for _, undo := range slices.Backward(opened) {
				err = errors.Join(err, undo())
			}
		}
	}()
	if wireguard.Holds(o.Link, cfg.ESP.Port) { // that is the port which is to be had
		if err = leave(o.Link, log, leaveWireGuard(o.Link)); err != nil {
			return carrier{}, err
		}
	}
	out := overIPsec{}
	out.socket, err = espudp.Open(ctx, espudp.Settings{Port: cfg.ESP.Port, Mark: o.Marks.Own})
	if err != nil {
		return carrier{}, err
	}
	opened = append(opened, out.socket.Close)
	// A link that carries packets is removed only once this one has its port.
	if err = leave(o.Link, log, leaveWireGuard(o.Link)); err != nil {
		return carrier{}, err
	}
	link, err := ipsec.Open(ipsec.Settings{Link: o.Link, ID: ipsec.ID(o.Link), MTU: o.MTU, Mark: o.Marks.Own,
		Mask: o.Marks.Mask})
	if err != nil {
		return carrier{}, err
	}
	out.made = link.Made()
	opened = append(opened, func() error { return link.Close(!out.made) })
	var later connections
	parts := ipsectunnel.Parts{Kernel: link, Link: link, Transport: &later, Port: out.socket.Port(),
		Numbers: numbers, ChaCha: cfg.ESP.Cipher == meshconf.ChaCha, Local: leavesFrom(o.Marks.Own),
		Wake: data.Wake, Log: log}
	if out.raw, parts.NoRaw = openRaw(ctx, cfg, log); out.raw != nil {
		parts.Raw = out.raw
		opened = append(opened, out.raw.Close)
	}
	if out.Engine, err = ipsectunnel.New(parts); err != nil {
		return carrier{}, err
	}
	if out.port, err = keyconn.Open(out.socket.Packets(), out.Engine.Server(), out.Engine.Near); err != nil {
		return carrier{}, err
	}
	later.Port = out.port
	opened = append(opened, out.port.Close)
	if out.relay, err = openRelayed(ctx, out.Engine, out.socket.Port(), data, disco.IPsecMark); err != nil {
		return carrier{}, err
	}
	return carrier{out.relay, out.relay, out.socket, out, out}, nil
}

// openRaw opens the socket by which nodes find out whether protocol 50 passes, or says why there is none: what it is
// about goes by UDP, too.
func openRaw(ctx context.Context, cfg Config, log *slog.Logger) (*rawesp.Socket, string) {
	if cfg.ESP.InUDP {
		return nil, "mesh.ipsec.esp says so"
	}
	s, err := rawesp.Open(ctx, cfg.Options.Marks.Own)
	if err != nil {
		log.Warn("all packets of IPsec go in UDP", telemetry.AttrReason, err)
		return nil, err.Error()
	}
	return s, ""
}

// leavesFrom tells from which address of this machine packets with a mark leave for another one.
func leavesFrom(mark uint32) func(netip.Addr) (netip.Addr, error) {
	d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error { return marked.Mark(c, mark) }}
	return func(to netip.Addr) (netip.Addr, error) {
		c, err := d.Dial("udp", netip.AddrPortFrom(to, espudp.Port).String()) // which sends nothing
		if err != nil {
			return netip.Addr{}, err
		}
		defer c.Close()
		return c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap(), nil
	}
}

// tunnels are those of IPsec, by the peer's key.
func (m *Mesh) tunnels() map[member.Key]ipsectunnel.State {
	if p := m.parts.Load(); p != nil {
		return p.carrier.Peers()
	}
	return nil
}

// use is that of all tunnels of IPsec.
func (m *Mesh) use() ipsectunnel.Use {
	if p := m.parts.Load(); p != nil {
		return p.carrier.Use()
	}
	return ipsectunnel.Use{}
}

// keys adds what is known of tunnels of IPsec. A path says nothing of them: without keys nothing passes it.
func (p *Peer) keys(s ipsectunnel.State) {
	switch {
	case s.Fault == nil:
	case s.Until.IsZero():
		p.Why = "no keys are agreed, and packets are lost: " + s.Fault.Error()
	default:
		p.Why = strings.TrimPrefix(fmt.Sprintf("%s; no new keys are agreed, and the present ones end at %s: %v", p.Why,
			s.Until.UTC().Format(time.RFC3339), s.Fault), "; ")
	}
	if s.Why != "" {
		p.ESP = espText(s)
	}
	for _, t := range s.Tunnels {
		a := SecurityAssociation{Local: t.Local, Remote: t.Remote, ReqID: t.Number, SPIIn: fmt.Sprintf("%#x", t.In),
			Cipher: t.Cipher.String(), Here: t.Own, Sends: t.Sends, Since: t.Made.Round(0), Ends: t.Ends.Round(0),
			Packets: [2]uint64{t.Sent, t.Got}, Raw: t.Raw}
		if t.Out != 0 {
			a.SPIOut = fmt.Sprintf("%#x", t.Out)
		}
		p.SecurityAssociations = append(p.SecurityAssociations, a)
	}
}

// errorNames are those of the errors of IPsec that a node with an engine counts.
func errorNames(engine string) []string {
	if engine != meshconf.IPsec {
		return nil
	}
	return ipsec.ErrorNames()
}

// ipsecErrors are what the kernel has dropped, without what tries protocol 50, which is no error. None is known while
// it cannot be read.
func (m *Mesh) ipsecErrors() []ipsec.Error {
	if m.cfg.engine() != meshconf.IPsec {
		return nil
	}
	trials := m.use().Trials // before the kernel's, which counts a packet first
	all, err := ipsec.Errors()
	at := slices.IndexFunc(all, func(e ipsec.Error) bool { return e.Name == ipsec.NoStates })
	if at >= 0 && !m.cfg.ESP.InUDP {
		all[at].Packets = m.noStates.without(all[at].Packets, trials)
	}
	if err != nil {
		m.log.Debug("the errors of IPsec are not read", telemetry.AttrReason, err)
	}
	return all
}

// strays counts packets without a state since it was asked first. It never falls, be both of its figures read at
// different moments.
type strays struct {
	mu      sync.Mutex
	begun   bool
	before  uint64
	last    uint64
	highest uint64
}

// without is how many there were of all, some of which were expected. What was counted once only may still be on its
// way to who expects it.
func (s *strays) without(all, expected uint64) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := all - min(expected, all)
	if !s.begun {
		s.begun, s.before = true, now
	}
	now -= min(s.before, now)
	s.highest = max(s.highest, min(now, s.last))
	s.last = now
	return s.highest
}

// explainKeys says by which keys packets go to a peer; empty: not by IPsec, or by none.
func (p *Peer) explainKeys() string {
	for _, a := range p.SecurityAssociations {
		if a.Sends {
			return fmt.Sprintf("ipsec: from %s to %s, SPI %s, %s, answers by SPI %s\n%s", a.Local, a.To(), a.SPIOut, a.Cipher,
				a.SPIIn, p.explainESP())
		}
	}
	return ""
}

// espText says whether packets go without UDP, and why.
func espText(s ipsectunnel.State) string {
	if s.Raw {
		return "without UDP: " + s.Why
	}
	return "in UDP: " + s.Why
}

func (p *Peer) explainESP() string {
	if p.ESP == "" {
		return ""
	}
	return "esp " + p.ESP + "\n"
}

// To is the other end as people see it: protocol 50 has no ports.
func (a SecurityAssociation) To() string {
	if a.Raw {
		return a.Remote.Addr().String()
	}
	return a.Remote.String()
}

// ipsecErrorsInto adds those of which there are any to a status.
func (m *Mesh) ipsecErrorsInto(out *Status) {
	for _, e := range m.ipsecErrors() {
		if e.Packets > 0 {
			out.IPsecErrors = append(out.IPsecErrors, IPsecError(e))
		}
	}
}
