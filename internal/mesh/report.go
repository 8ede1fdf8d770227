// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/echo"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
	"github.com/tombolo-io/tombolo/internal/discovery/seal"
	"github.com/tombolo-io/tombolo/internal/mesh/attach"
	"github.com/tombolo-io/tombolo/internal/mesh/endpoint"
	"github.com/tombolo-io/tombolo/internal/mesh/meshconf"
	"github.com/tombolo-io/tombolo/internal/mesh/netcheck"
	"github.com/tombolo-io/tombolo/internal/mesh/path"
	"github.com/tombolo-io/tombolo/internal/mesh/peering"
	"github.com/tombolo-io/tombolo/internal/mesh/relay"
	"github.com/tombolo-io/tombolo/internal/mesh/topology"
)

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// Status is how this node and its peers are.
func (m *Mesh) Status() Status {
	s := m.state.Load()
	out := s.status(time.Now())
	out.Version, out.Since = m.cfg.Version, m.since
	m.identityInto(&out)
	out.Warnings = append(out.Warnings, m.o.Services.Warnings()...)
	if f := m.o.Services.Shared(); f != nil {
		out.Warnings = append(out.Warnings, f.Explain())
	}
	if p := m.parts.Load(); p != nil {
		p.into(&out)
		p.besideInto(&out, s)
	}
	m.ipsecErrorsInto(&out)
	m.reloads.get().into(&out)
	reports, tunnels := m.reports(), m.tunnels()
	for _, t := range s.peers {
		p := peerOf(t, s.members[t.ID], reports[t.ID])
		p.carried(s.carried(t.Engine))
		p.keys(tunnels[t.Key])
		out.Peers = append(out.Peers, p)
	}
	slices.SortFunc(out.Peers, func(a, b Peer) int { return strings.Compare(a.Node, b.Node) })
	return out
}

// reports are what is known of the ways to peers, by id.
func (m *Mesh) reports() map[string]peering.Report {
	out := map[string]peering.Report{}
	if p := m.parts.Load(); p != nil {
		for _, w := range p.ways() {
			for _, r := range w.peering.Reports() {
				out[r.ID] = r
			}
		}
	}
	return out
}

// status is what the state alone shows.
func (s *state) status(now time.Time) Status {
	o := s.cfg.Options
	out := Status{
		Meta: meta(KindStatus), ID: s.id, Node: s.base.Node, Cluster: s.cluster().name(), Secrets: s.clusters(),
		Sourceless: s.cfg.Sourceless,
		PublicKey:  s.key.public.String(), Pin: s.key.certificate.pin.String(), Link: o.Link, MTU: o.MTU,
		Engine: s.cfg.engine(), EngineWhy: s.cfg.chosen.why, Lazy: s.lazy(), Bypass: s.set.Options.Bypass,
		Overlay6: s.overlay.Six, Overlay4: s.overlay.Four, Ranges: slices.Clone(s.self.Ranges),
		Closed:    closedMembers(s.ranges.known, s.set),
		Endpoints: []Endpoint{}, Peers: []Peer{}, Offloads: []Offload{},
	}
	for _, e := range append(s.troubles.all(), s.ranges.failed) {
		if e != nil {
			out.Warnings = append(out.Warnings, e.Error())
		}
	}
	for _, f := range s.doubts {
		out.Warnings = append(out.Warnings, f.Explain())
	}
	if s.cfg.Sourceless {
		out.Warnings = append(out.Warnings, noSource+" ('sources' in the configuration, or --service)")
	}
	s.pods.into(&out, s.base.Ranges, now)
	if s.ranges.left > 0 {
		out.Warnings = append(out.Warnings, fmt.Sprintf(
			"there are more members with ranges than are remembered for an outage (%d, with %d ranges): "+
				"packets to the %d known for the shortest time would then be sent in clear",
			meshLearned, meshLearnedRanges, s.ranges.left))
	}
	if g := s.overlay.Gave; g != nil && now.Sub(g.At).Abs() < s.cfg.Lease {
		out.Warnings = append(out.Warnings, g.fault().Error())
	}
	out.Warnings = append(out.Warnings, otherPrefixes(s.overlay.Prefix, sameSecret(s.peers, s.members, out.Secrets))...)
	named := func(id string) string { // empty: it has no name, or another member has it
		if r := s.members[id]; r != nil {
			return r.Node
		}
		return ""
	}
	out.Problems = append(out.Problems, problemsOf(s.world.result.Conflicts, s.id, s.base.Node, named)...)
	return out
}

// closedMembers are the members whose ranges are closed.
func closedMembers(known knownRanges, set meshconf.Config) (out []Closed) {
	if set.Options.Bypass {
		return nil
	}
	for _, l := range known.Members {
		if l.closed() {
			out = append(out, Closed{Node: l.Node, ID: l.ID, Ranges: l.Ranges, Since: l.Gone,
				Until: l.Gone.Add(set.ClosedFor)})
		}
	}
	return out
}

// identityInto adds the certificate and the hubs to the status.
func (m *Mesh) identityInto(s *Status) {
	a := m.attach.Status()
	if !a.Enabled {
		return
	}
	s.Identity = &Identity{URI: a.Identity, Expires: a.CertificateEnd, Renewal: a.NextRenewal,
		Fault: admin.BodyOf(a.Fault)}
	for _, h := range a.Hubs {
		s.Hubs = append(s.Hubs, hubOf(h))
	}
	if a.Mark != nil {
		s.Warnings = append(s.Warnings, a.Mark.Error())
	}
}

func hubOf(h relay.Status) Hub {
	return Hub{
		Name: h.Hub, Address: h.Address, Connected: h.Connected, Since: h.Since, RTT: millis(h.RTT), Rate: h.Rate,
		Sent: h.Sent, Received: h.Received, Dropped: h.Dropped, Fault: admin.BodyOf(h.Fault),
	}
}

// into adds what runs to the status.
func (p *parts) into(s *Status) {
	s.Port = p.carrier.Port()
	r := p.routing.Status()
	s.InForce, s.Fault, s.Tries = r.InForce, admin.BodyOf(r.Fault), r.Tries
	for _, q := range r.Problems {
		s.Problems = append(s.Problems, problemOf(q))
	}
	policyInto(s, r.Policy)
	for reason, n := range r.Dropped {
		s.Dropped = append(s.Dropped, Dropped{reason, n})
	}
	slices.SortFunc(s.Dropped, func(a, b Dropped) int { return strings.Compare(a.Reason, b.Reason) })
	s.TunnelDropped = tunnelDropped(p.drops())
	e := p.endpoints.Status()
	for _, w := range p.ways() {
		for _, at := range w.endpoints.Status().Endpoints {
			if here := (Endpoint{at.At, string(at.Kind)}); !slices.Contains(s.Endpoints, here) {
				s.Endpoints = append(s.Endpoints, here)
			}
		}
	}
	if e.PortMapping.Wanted {
		s.Router = &Router{Method: e.PortMapping.Method, External: e.PortMapping.External}
		for _, t := range e.PortMapping.Tried {
			s.Router.Why = append(s.Router.Why, t.Method+": "+t.Why)
		}
	}
	for _, a := range e.Servers {
		s.Servers = append(s.Servers, Server{Name: a.Name, Addr: a.Address, Mapped: a.Mapped, RTT: a.RTT * 1000,
			Failing: a.Failing, Why: a.Why})
	}
	for _, w := range e.Problems {
		s.Warnings = append(s.Warnings, fmt.Sprintf("%s: %s", w.What, w.Why))
	}
	w := p.ways()
	for _, o := range w[len(w)-1].carrier.Offloads() {
		s.Offloads = append(s.Offloads, Offload{o.Name, o.On, o.Why})
	}
}

// peerOf is a peer as it is shown. Of one that was planned just now there may be no
// report yet.
func peerOf(t topology.Peer, member *roster.Member, r peering.Report) Peer {
	p := Peer{
		ID: t.ID, Node: t.Node, PublicKey: t.Key.String(), Pin: t.Pin.String(), Engine: t.Engine.String(),
		Overlay6: t.Overlay6, Overlay4: t.Overlay4, Ranges: rangesOf(t),
		State: string(r.State), Why: r.Why, Path: r.Path.String(), Since: r.Since, RTT: millis(r.Trip), MTU: r.Size,
		Handshake: r.Handshake,
		Sent:      r.Sent, Received: r.Received,
	}
	if r.Secret != (seal.ClusterID{}) {
		p.Secret = r.Secret.String()
	}
	if r.Path.IsZero() {
		p.Path = ""
	}
	if r.Unsent != nil {
		p.Unsent = r.Unsent.Error()
	}
	if r.State == "" {
		p.State, p.Why = string(path.Down), "it has only just become known"
	}
	if r.Problem != nil {
		p.State, p.Why = string(path.Down), r.Problem.Error()
	}
	if member != nil {
		p.Probes, p.Stale = member.Mesh > 0, member.Stale
	}
	for _, c := range r.Candidates {
		out := Candidate{At: c.Path.String(), Near: c.Near, Sent: c.Sent, Answers: c.Answers, RTT: millis(c.Trip), Why: c.Why}
		if c.Path.Direct() {
			out.Kind = c.Kind.String()
		}
		p.Candidates = append(p.Candidates, out)
	}
	return p
}

// rangesOf are what is routed to a peer beside its overlay addresses.
func rangesOf(t topology.Peer) []netip.Prefix {
	var out []netip.Prefix
	for _, r := range t.Allowed {
		if a := r.Addr(); !r.IsSingleIP() || a != t.Overlay6 && a != t.Overlay4 {
			out = append(out, r)
		}
	}
	return out
}

// Explain shows how a packet of this machine to an address goes.
func (m *Mesh) Explain(ctx context.Context, to netip.Addr) (Explanation, error) {
	p := m.parts.Load()
	if p == nil {
		return Explanation{}, notUp()
	}
	e, err := p.routing.Explain(ctx, to)
	if err != nil {
		return Explanation{}, err
	}
	out := Explanation{Meta: meta(KindExplanation), Address: to, InMesh: e.ToPeer && !e.Local, Local: e.Local, Set: e.Set,
		Text: e.String()}
	if e.Set != "" {
		out.Element = e.Range.String()
	}
	if e.Local { // before all rules
		return out, nil
	}
	if e.Mark != 0 {
		out.Mark, out.Rule, out.Line = fmt.Sprintf("%#x", e.Mark), e.Rule.String(), e.Line.String()
	}
	if e.Routed {
		out.Table, out.Route = e.Route.Table, e.Route.String()
	}
	if !e.ToPeer {
		return out, nil
	}
	if peer, err := m.Status().Peer(e.Peer.ID); err == nil {
		out.Peer = &peer
		by := peer.State
		if peer.Path != "" {
			by += " by " + peer.Path
		}
		out.Text = strings.TrimRight(out.Text, "\n") + fmt.Sprintf("\npath: %s", by)
		if peer.Why != "" {
			out.Text += ": " + peer.Why
		}
		out.Text += "\n" + peer.explainEngine() + peer.explainKeys()
	}
	return out, nil
}

// Ping sends an echo to a peer through the tunnel.
func (m *Mesh) Ping(ctx context.Context, name string, wait time.Duration) (Ping, error) {
	peer, err := m.Status().Peer(name)
	if err != nil {
		return Ping{}, err
	}
	if p := m.parts.Load(); p != nil {
		p.want(peer.ID)
	}
	o := m.state.Load().overlay
	from, to := o.Four, peer.Overlay4
	if !from.IsValid() || !to.IsValid() || to == netip.MustParseAddr("0.0.0.0") {
		from, to = o.Six, peer.Overlay6
	}
	if !to.IsValid() {
		return Ping{}, fault.Newf(fault.CodeNotFound, "%s has no overlay address", peer.Node).Whyf("another member has it").
			Hint("'tombolo mesh status' shows the problem")
	}
	bound, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	out := Ping{Meta: meta(KindPing), Node: peer.Node, To: to}
	took, err := echo.Ask(bound, to, echo.Options{From: from}, 0)
	if ctx.Err() != nil {
		return Ping{}, fault.From(ctx.Err())
	}
	if err != nil {
		out.Fault = admin.BodyOf(fault.From(err))
	}
	out.RTT = millis(took)
	if r, ok := m.reports()[peer.ID]; ok {
		out.State, out.Trip, out.Why = string(r.State), millis(r.Trip), r.Why
		if !r.Path.IsZero() {
			out.Path = r.Path.String()
		}
	}
	return out, nil
}

// Netcheck checks the network over the mesh's own socket.
func (m *Mesh) Netcheck(ctx context.Context) (Netcheck, error) {
	p := m.parts.Load()
	if p == nil {
		return Netcheck{}, notUp()
	}
	r, err := p.endpoints.Netcheck(ctx)
	if err != nil {
		return Netcheck{}, err
	}
	return netcheckOf(r)
}

// Check checks the network of a machine on which no mesh runs.
func Check(ctx context.Context, cfg Config) (Netcheck, error) {
	a, err := attach.Open(attachConfig(cfg), attach.Options{Log: slog.New(slog.DiscardHandler),
		Reg: prometheus.NewRegistry(), ReadJoin: cfg.ReadJoin})
	if err != nil {
		return Netcheck{}, err
	}
	return check(ctx, cfg, serversOf(cfg.STUN, a.Addresses(), cfg.Services), relaysOf(a))
}

// check checks the network by a socket of its own.
func check(ctx context.Context, cfg Config, servers []endpoint.Server, relays []netcheck.Relay) (Netcheck, error) {
	r, err := endpoint.Check(ctx, endpoint.Standalone{PortMapping: cfg.PortMapping, Without: cfg.Without, Relays: relays,
		Servers: servers})
	if err != nil {
		return Netcheck{}, err
	}
	return netcheckOf(r)
}

// Ready says why the node is not ready; nil if it is.
func (m *Mesh) Ready() *fault.Fault {
	p := m.parts.Load()
	if p == nil {
		return fault.New(fault.CodeMeshAway, "the mesh is not up yet")
	}
	if s := p.routing.Status(); !s.InForce {
		if s.Fault != nil {
			return s.Fault
		}
		return fault.New(fault.CodeMeshAway, "the kernel is not as it shall be yet")
	}
	return nil
}

// Forget opens the ranges of a member that is gone.
func (m *Mesh) Forget(node string) (out Forgotten, err error) {
	if m.parts.Load() == nil {
		return out, notUp()
	}
	v, err := m.ask(forget{node})
	if err != nil {
		return out, err
	}
	return v.(Forgotten), nil
}

// RotateKey replaces the key pair of this node. Every session ends; a peer begins a new one as soon
// as discovery has brought it the new key.
func (m *Mesh) RotateKey() (out Rotated, err error) {
	if m.parts.Load() == nil {
		return out, notUp()
	}
	v, err := m.ask(rotate{})
	if err != nil {
		return out, err
	}
	return v.(Rotated), nil
}
