// SPDX-License-Identifier: Apache-2.0

package vpn

import (
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/plan"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/vpn/network"
	"github.com/tombolo-io/tombolo/internal/vpn/openvpn"
)

// Client is a running 'tombolo vpn client'.
type Client struct {
	cfg      ClientConfig
	log      *slog.Logger
	reg      *prometheus.Registry
	now      func() time.Time
	began    time.Time
	metrics  *telemetry.VPN
	draining atomic.Bool
	version  string // of OpenVPN
	healthAt string
	ends     []*end
	host     host
}

// end is this side of the tunnel to one server.
type end struct {
	*Client
	remote
	link    string
	number  int
	process *process
	kernel  state
	looked  time.Time // when it was

	mu      sync.Mutex
	who     identity
	state   string // of OpenVPN
	last    string // the one before
	since   time.Time
	heard   time.Time // bytes of the server
	in, out uint64
	address []netip.Addr   // that the server gave
	by      netip.AddrPort // where it was reached
	dialled openvpn.Remote // of several: as it is configured
	asked   bool           // it was heard again after the connection was made: it asks each second
	why     *fault.Fault   // why no packets pass
}

// NewClient makes a client. It changes nothing yet.
func NewClient(cfg ClientConfig, o Options) *Client {
	if o.Now == nil {
		o.Now = time.Now
	}
	c := &Client{cfg: cfg, log: o.Log, reg: o.Reg, now: o.Now, began: o.Now(), host: newHost(),
		metrics: telemetry.NewVPN(o.Reg, func() float64 { return 0 })}
	for i, r := range cfg.Servers {
		e := &end{Client: c, remote: r, number: i, link: fmt.Sprintf("%s%d", cfg.OpenVPN.Link, i), since: o.Now()}
		e.process = &process{program: cfg.Program, dir: filepath.Join(dirOf(cfg.RunDir, clientDir), fmt.Sprint(i)),
			log:     o.Log.With("server", r.address),
			prepare: e.prepare, handle: e.handle, tick: e.tick, every: probeEvery, ended: e.ended,
			again: make(chan struct{}, 1)}
		c.ends = append(c.ends, e)
	}
	return c
}

// tunnel is what one tunnel needs in the kernel.
func (e *end) tunnel() network.Tunnel {
	t := network.Tunnel{Link: e.link, Filter: filterOf(e.link), Table: e.cfg.Table + e.number, Rule: e.cfg.Rule + e.number,
		MTU: e.cfg.OpenVPN.MTU, Routed: e.cfg.Routes, Served: e.cfg.Ranges}
	for _, a := range e.address {
		t.Addresses = append(t.Addresses, netip.PrefixFrom(a, e.transfer.of(a).Bits()))
	}
	return t
}

// prepare writes the files of a start.
func (e *end) prepare() (map[string][]byte, error) {
	who, err := e.cfg.read(id.RoleVPNClient)
	if err != nil {
		return nil, err
	}
	c := in(e.process.dir, e.cfg.OpenVPN)
	c.Link = e.link
	c.User, c.Group = e.host.unprivileged()
	e.mu.Lock()
	remotes := e.remotes
	e.mu.Unlock()
	out := openvpn.Client{Common: c, Remotes: remotes, Proxy: e.proxy, ServerName: e.cfg.ServerName}
	if out.ServerName == "" && e.cfg.Identity.Bundle != "" {
		out.ServerPrefix = id.VPNServerPrefix(e.cfg.Cluster)
	}
	e.mu.Lock()
	e.who = who
	e.mu.Unlock()
	e.metrics.Starts.Inc()
	files := who.files
	files[configName] = []byte(out.Config())
	return files, nil
}

// handle takes an event of OpenVPN.
func (e *end) handle(ev openvpn.Event, send func(string)) {
	switch ev := ev.(type) {
	case openvpn.Remote:
		e.mu.Lock()
		e.dialled = ev
		e.mu.Unlock()
		send(openvpn.AcceptRemote())
	case openvpn.Traffic:
		e.mu.Lock()
		defer e.mu.Unlock()
		if ev.In > e.in {
			e.asked = e.asked || e.state == openvpn.Connected && e.now().Sub(e.since) > probeEvery
			e.heard = e.now()
		}
		count(e.metrics, e.remote.address, &e.in, &e.out, ev)
	case openvpn.State:
		e.enter(ev)
	}
}

// enter takes a state over. Connected, the link gets the addresses that the server has for it.
func (e *end) enter(s openvpn.State) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.last, e.state, e.since = e.state, s.Name, e.now()
	switch s.Name {
	case openvpn.Connected:
		e.heard, e.asked, e.by = e.now(), false, s.Remote
		e.address, e.why = granted(s, e.transfer)
		if e.why == nil {
			if err := apply(e.kernel, e.tunnel().State()); err != nil {
				e.why = fault.From(err)
			}
		}
		if e.why != nil {
			e.log.Error("the tunnel cannot be used", telemetry.AttrCode, e.why.Code, telemetry.AttrReason, e.why.Error())
			return
		}
		e.log.Info("connected", "server", e.remote.address, "by", e.by, "addresses", e.address)
	case openvpn.Reconnecting, openvpn.Exiting:
		e.why = stood(e.last, s.Detail)
		e.log.Warn("not connected", "server", e.remote.address, telemetry.AttrCode, e.why.Code, telemetry.AttrReason,
			e.why.Error())
	}
}

// granted are the addresses that a server gave, if they are in the transfer networks.
func granted(s openvpn.State, t transfer) (out []netip.Addr, f *fault.Fault) {
	for _, a := range []netip.Addr{s.Address4, s.Address6} {
		if !a.IsValid() {
			continue
		}
		if n := t.of(a); !n.IsValid() || !n.Contains(a) {
			return nil, fault.Newf(fault.CodeConfig, "the server gave the address %s, which is in no transfer network", a).
				Hint("write the server's transfer networks to transfer on this end, if you trust it")
		}
		out = append(out, a)
	}
	if len(out) == 0 {
		return nil, fault.New(fault.CodeConfig, "the server gave no address").
			Hint("look at transfer in its configuration, or server and server-ipv6 of a stock OpenVPN")
	}
	return out, nil
}

// stood says what it means that a connection ended in some state of OpenVPN.
func stood(state, detail string) *fault.Fault {
	return fault.New(fault.CodeVPNDown, "the tunnel is not connected").Whyf("%s after %s", detail, state).
		Hint("%s", remedy(state))
}

// remedy is what to look at if a connection gets no further than a state of OpenVPN.
func remedy(state string) string {
	switch state {
	case openvpn.Wait:
		return "the server did not answer the first packet: compare tlsAuth or tlsCrypt of both ends, and look at what is " +
			"at its address"
	case openvpn.Auth:
		return "the handshake failed: compare the CA of both ends, and look at the server's log for this client"
	case openvpn.Connected:
		return "the connection was lost, or the server sent this client away: see its log"
	}
	return "the server cannot be reached: look at its address and at the proxy in between"
}

func (e *end) ended(f *fault.Fault) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.state, e.since = openvpn.Exiting, e.now()
	e.metrics.Up.WithLabelValues(e.remote.address).Set(0)
	if f != nil && (e.why == nil || f.Code != fault.CodeVPNDown) {
		e.why = f
	}
}

// leaves reports whether the address by which a silent server was reached is to be left. The next one comes first then,
// which OpenVPN does not do by itself: a SIGUSR1 has it wait for the lost one once more.
func (e *end) leaves() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	ours := e.cfg.Identity.Bundle != "" // another server need not ask each second
	if len(e.remotes) < 2 || !ours || e.state != openvpn.Connected || !e.asked || e.now().Sub(e.heard) <= silentFor {
		return false
	}
	e.asked = false // once
	next := max(slices.Index(e.remotes, e.dialled), 0) + 1
	e.remotes = slices.Concat(e.remotes[next:], e.remotes[:next])
	e.log.Warn("the server is silent, and its next address is tried", "by", e.by, "next", e.remotes[0].Host)
	return true
}

func (e *end) tick(func(string)) {
	if e.leaves() {
		e.process.restart()
	}
	if now := e.now(); now.Sub(e.looked) > lookEvery {
		e.looked = now
		e.mu.Lock()
		t := e.tunnel()
		e.mu.Unlock()
		restore(e.kernel, t, e.log)
	}
	up := 0.0
	if e.unready() == nil {
		up = 1
	}
	e.metrics.Up.WithLabelValues(e.remote.address).Set(up)
}

// unready says why no packets pass.
func (e *end) unready() *fault.Fault {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.state != openvpn.Connected && e.why != nil:
		return e.why
	case e.state != openvpn.Connected:
		return fault.New(fault.CodeVPNDown, "the tunnel is not connected yet").Whyf("OpenVPN is at %s", shown(e.state)).
			Hint("%s", remedy(e.state))
	case e.why != nil:
		return e.why
	case e.now().Sub(e.heard) > readyWithin:
		return fault.New(fault.CodeVPNDown, "the server has been silent").
			Whyf("for %s", e.now().Sub(e.heard).Round(time.Second))
	}
	return nil
}

func shown(state string) string {
	if state == "" {
		return "its start"
	}
	return state
}

// unready says why it is not ready: no tunnel carries packets.
func (c *Client) unready() *fault.Fault {
	if c.draining.Load() {
		return fault.New(fault.CodeDraining, "the VPN is shutting down")
	}
	var first *fault.Fault
	for _, e := range c.ends {
		f := e.unready()
		if f == nil {
			return nil
		}
		if first == nil {
			first = f
		}
	}
	return first
}

// families are those whose packets are forwarded.
func (c ClientConfig) families() (out []plan.Family) {
	for _, r := range c.Ranges {
		if f := plan.FamilyOf(r.There.Addr()); !slices.Contains(out, f) {
			out = append(out, f)
		}
	}
	return out
}

// open prepares the kernel for one tunnel.
func (e *end) open() (err error) {
	e.kernel, err = open(e.host, e.tunnel())
	return err
}

// Reload names what changes with the next start: all of it.
func (c *Client) Reload(next ClientConfig) {
	if !reflect.DeepEqual(c.cfg, next) {
		c.log.Warn("these settings change with the next start", "settings", "all")
	}
}

// links are those of its tunnels.
func (c *Client) links() (out []string) {
	for _, e := range c.ends {
		out = append(out, e.link)
	}
	return out
}
