// SPDX-License-Identifier: Apache-2.0

package vpn

import (
	"cmp"
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-io/tombolo/internal/base/echo"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/base/untrusted"
	"github.com/tombolo-io/tombolo/internal/vpn/network"
	"github.com/tombolo-io/tombolo/internal/vpn/openvpn"
)

// Options are what an end needs beside its configuration.
type Options struct {
	Log *slog.Logger
	Reg *prometheus.Registry
	Now func() time.Time // nil: the clock
}

// Server is a running 'tombolo vpn server'.
type Server struct {
	cfg      ServerConfig
	log      *slog.Logger
	reg      *prometheus.Registry
	now      func() time.Time
	began    time.Time
	metrics  *telemetry.VPN
	draining atomic.Bool
	open     atomic.Int64 // CONNECTs
	names    atomic.Pointer[[]string]
	version  string // of OpenVPN
	healthAt string
	process  *process

	mu     sync.Mutex
	who    identity
	peers  []peer
	places map[string]int // of clients that were here, by name
	kept   favour
	state  string       // of OpenVPN
	down   *fault.Fault // why it does not run

	kernel   state
	looked   time.Time // when the kernel was
	relieved time.Time // when clients were last asked to connect once more; of the process' goroutine
	probes   *run.Group
	host     host
}

// NewServer makes a server. It changes nothing yet.
func NewServer(cfg ServerConfig, o Options) *Server {
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &Server{cfg: cfg, log: o.Log, reg: o.Reg, now: o.Now, began: o.Now(), places: map[string]int{}, host: newHost()}
	s.names.Store(&cfg.Clients)
	s.metrics = telemetry.NewVPN(o.Reg, func() float64 { return float64(s.open.Load()) })
	return s
}

// Reload takes over who may dial in, and names the rest in the log.
func (s *Server) Reload(next ServerConfig) {
	if fixed := s.cfg.fixedChanges(next); len(fixed) > 0 {
		s.log.Warn("these settings change with the next start", "settings", fixed)
	}
	s.names.Store(&next.Clients)
}

// routed are the ranges of the cluster as they are reached here.
func (c ServerConfig) routed() (out []netip.Prefix) {
	for _, r := range c.Ranges {
		out = append(out, r.Here)
	}
	return out
}

// tunnel is what the server needs in the kernel.
func (c ServerConfig) tunnel() network.Tunnel {
	t := network.Tunnel{Link: c.OpenVPN.Link, Filter: filterOf(c.OpenVPN.Link), Table: c.Table, Rule: c.Rule,
		MTU: c.OpenVPN.MTU, Routed: c.routed()}
	for _, p := range c.Transfer.all() {
		t.Addresses = append(t.Addresses, netip.PrefixFrom(openvpn.First(p), p.Bits()))
	}
	return t
}

// prepare writes the files of a start.
func (s *Server) prepare() (map[string][]byte, error) {
	who, err := s.cfg.read(id.RoleVPNServer)
	if err != nil {
		return nil, err
	}
	c := in(s.process.dir, s.cfg.OpenVPN)
	c.User, c.Group = s.host.unprivileged()
	out := openvpn.Server{
		Common: c, Listen: s.cfg.Listen, IPv6: s.host.hasIPv6(), Transfer4: s.cfg.Transfer.V4, Transfer6: s.cfg.Transfer.V6,
		Clients: connections, Hosts: network.Hosts(s.cfg.routed()), Track: s.cfg.Identity.Bundle != "",
	}
	s.mu.Lock()
	s.who, s.peers, s.down, s.state = who, nil, nil, ""
	s.kept.until = s.now().Add(keptFor)
	s.mu.Unlock()
	s.metrics.Starts.Inc()
	files := who.files
	files[configName] = []byte(out.Config())
	return files, nil
}

// handle takes an event of OpenVPN.
func (s *Server) handle(e openvpn.Event, send func(string)) {
	switch e := e.(type) {
	case openvpn.State:
		s.mu.Lock()
		s.state = e.Name
		s.mu.Unlock()
	case openvpn.Traffic:
		s.traffic(e)
	case openvpn.ClientEvent:
		switch e.What {
		case openvpn.ClientConnect:
			s.admit(e, send)
		case openvpn.ClientReauth:
			if _, why := s.name(e); why != nil {
				s.refuse(e, why, send)
				return
			}
			send(openvpn.Renew(e))
		case openvpn.ClientDisconnect:
			s.gone(e)
		}
	}
}

// name is who a client is, if it may come.
func (s *Server) name(e openvpn.ClientEvent) (string, *fault.Fault) {
	name := e.CommonName()
	if s.cfg.Identity.Bundle != "" {
		who, err := id.ParseURI(e.URI())
		if err != nil || who.Role != id.RoleVPNClient || who.Cluster.String() != s.cfg.Cluster {
			return "", fault.New(fault.CodeUnauthorized, "the client is no vpn-client of cluster "+s.cfg.Cluster).
				Whyf("its certificate is for %s", untrusted.Text(cmp.Or(e.URI(), name), reason)).
				Hint("issue one: tombolo certificate issue --role vpn-client --cluster %s --name NAME --out FILE", s.cfg.Cluster)
		}
		name = who.Name
	}
	if !admits(*s.names.Load(), name) {
		return "", fault.New(fault.CodeUnauthorized, "the client is not among those that may dial in").
			Whyf("it is %s", untrusted.Text(name, reason)).Hint("add it to clients in the configuration")
	}
	return name, nil
}

func (s *Server) refuse(e openvpn.ClientEvent, f *fault.Fault, send func(string)) {
	s.metrics.Refused.Inc()
	s.log.Warn("a client was refused", telemetry.AttrCode, f.Code, telemetry.AttrReason, f.Error(), telemetry.AttrPeer,
		e.From())
	send(openvpn.Refuse(e, string(f.Code)))
}

// admit lets a client in, and says what is behind it.
func (s *Server) admit(e openvpn.ClientEvent, send func(string)) {
	name, why := s.name(e)
	if why != nil {
		s.refuse(e, why, send)
		return
	}
	now := s.now()
	s.mu.Lock()
	if others(s.peers, name) >= clients {
		s.mu.Unlock()
		s.refuse(e, fault.Newf(fault.CodeLimit, "%d clients are connected", clients).Hint("stop some of them"), send)
		return
	}
	p := peer{client: e.Client, name: name, place: placeOf(s.peers, name, s.places), since: now, from: e.From(),
		active: takes(s.peers, name, s.kept, now)}
	if p.active {
		s.kept = favour{name: name}
		for i := range s.peers {
			s.peers[i].active = false
		}
	}
	s.places[name] = p.place
	s.peers = append(s.peers, p)
	s.mu.Unlock()
	g := openvpn.Grant{Transfer4: s.cfg.Transfer.V4, Transfer6: s.cfg.Transfer.V6, MTU: s.cfg.OpenVPN.MTU}
	for _, a := range p.addresses(s.cfg.Transfer) {
		if a.Is4() {
			g.Address4 = a
		} else {
			g.Address6 = a
		}
	}
	if p.active {
		g.Ranges = s.cfg.routed()
	}
	send(openvpn.Admit(e, g))
	s.log.Info("a client has come", telemetry.AttrPeer, name, "from", p.from, "active", p.active)
}

// gone forgets a client.
func (s *Server) gone(e openvpn.ClientEvent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := slices.IndexFunc(s.peers, func(p peer) bool { return p.client == e.Client })
	if at < 0 {
		return
	}
	p := s.peers[at]
	s.peers = slices.Delete(s.peers, at, at+1)
	if !slices.ContainsFunc(s.peers, func(o peer) bool { return o.name == p.name }) {
		s.metrics.Up.DeleteLabelValues(p.name)
	}
	if len(s.places) > clients { // names are verified, but may change all the time
		s.places = map[string]int{}
		for _, o := range s.peers {
			s.places[o.name] = o.place
		}
	}
	s.log.Info("a client has gone", telemetry.AttrPeer, p.name, "active", p.active)
}

func (s *Server) traffic(e openvpn.Traffic) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.peers {
		if p := &s.peers[i]; p.client == e.Client {
			count(s.metrics, p.name, &p.in, &p.out, e)
		}
	}
}

// tick asks clients whether packets pass, and has another one take the place of one that is dead.
func (s *Server) tick(send func(string)) {
	now := s.now()
	s.mu.Lock()
	peers, kept := slices.Clone(s.peers), s.kept
	s.mu.Unlock()
	for _, p := range peers {
		up := 0.0
		if !p.answered.IsZero() && p.alive(now) {
			up = 1
		}
		s.metrics.Up.WithLabelValues(p.name).Set(up)
		s.probes.Do(func(ctx context.Context) { s.probe(ctx, p) })
	}
	for _, p := range peers {
		if !admits(*s.names.Load(), p.name) {
			s.log.Warn("a client is sent away: it may not dial in any more", telemetry.AttrPeer, p.name)
			send(openvpn.Halt(p.client))
		}
	}
	if now.Sub(s.looked) > lookEvery {
		s.looked = now
		restore(s.kernel, s.cfg.tunnel(), s.log)
	}
	if now.Sub(s.relieved) < deadAfter || kept.holds(now) { // who was asked needs a moment to come again
		return
	}
	for _, client := range relieve(peers, now) {
		s.relieved = now
		s.metrics.Switches.Inc()
		s.log.Warn("a client has to connect once more, so that the cluster's ranges are behind one that answers",
			"client", client)
		send(openvpn.Restart(client))
	}
}

// probe asks one client, by its addresses in the transfer networks.
func (s *Server) probe(ctx context.Context, p peer) {
	for _, a := range p.addresses(s.cfg.Transfer) {
		if !s.host.answers(ctx, a) {
			continue
		}
		s.mu.Lock()
		for i := range s.peers {
			if o := &s.peers[i]; o.client == p.client && o.place == p.place {
				o.answered = s.now()
			}
		}
		s.mu.Unlock()
		return
	}
}

// unready says why it is not ready: nobody has the cluster's ranges who answers.
func (s *Server) unready() *fault.Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.draining.Load():
		return fault.New(fault.CodeDraining, "the VPN is shutting down")
	case s.down != nil:
		return s.down
	case len(s.peers) == 0:
		return fault.New(fault.CodeVPNDown, "no client of the cluster is connected").
			Hint("look at 'tombolo vpn status' in the cluster")
	}
	now := s.now()
	for _, p := range s.peers {
		if p.active && !p.answered.IsZero() && p.alive(now) {
			return nil
		}
	}
	return fault.New(fault.CodeVPNDown, "no client of the cluster answers").
		Whyf("%d are connected", len(s.peers)).Hint("'tombolo vpn status' lists them")
}

// answers reports whether an address answers an echo request.
func answers(ctx context.Context, to netip.Addr) bool {
	conn, err := echo.Open(to)
	if err != nil {
		return false
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, probeWait)
	defer cancel()
	stop := run.OnDone(ctx, func() { conn.Close() })
	defer stop()
	if _, err := conn.Write([]byte{0, 1}); err != nil {
		return false
	}
	n, err := conn.Read(make([]byte, 64))
	return err == nil && n > 0
}
