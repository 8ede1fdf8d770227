// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
	"github.com/tombolo-io/tombolo/internal/mesh/attach"
	"github.com/tombolo-io/tombolo/internal/mesh/endpoint"
	"github.com/tombolo-io/tombolo/internal/mesh/kernel/machine"
	"github.com/tombolo-io/tombolo/internal/mesh/netcheck"
	meshpath "github.com/tombolo-io/tombolo/internal/mesh/path"
	"github.com/tombolo-io/tombolo/internal/mesh/peering"
	"github.com/tombolo-io/tombolo/internal/mesh/routing"
	"github.com/tombolo-io/tombolo/internal/mesh/topology"
	"github.com/tombolo-io/tombolo/internal/mesh/tunnel"
)

// followMembers plans anew when members, the health of paths or this machine's networks
// are others, until ctx ends. Leases that are renewed are nothing new: in a large mesh some
// are at any moment. Under which secrets members are is looked at with them, by and by.
func (m *Mesh) followMembers(ctx context.Context) error {
	defer m.keepLast()
	var before roster.Result
	var planned time.Time
	asked := true
	for {
		result, more := m.finder.Result()
		var later <-chan time.Time
		if asked || time.Since(planned) >= limit.MeshQuiet || len(roster.Events(before, result)) > 0 {
			if again := m.follow(result); again > 0 {
				later = time.After(again)
			}
			before, planned, asked = result, time.Now(), false
		} else {
			later = time.After(limit.MeshQuiet - time.Since(planned))
		}
		select {
		case <-more:
		case <-later:
			asked = true
		case <-m.look:
			asked = true
		case <-ctx.Done():
			return nil
		}
		run.Wait(ctx, limit.MeshGather)
	}
}

// follow plans with what is known now, and says after how long to do so again without news; 0, if
// never.
func (m *Mesh) follow(result roster.Result) (again time.Duration) {
	was := m.overlayNow().Gave
	changed, err := m.reconsider(result)
	if err != nil {
		m.log.Error("the overlay addresses are not kept", telemetry.AttrReason, err)
	}
	if changed {
		m.logAddresses(was)
		ring(m.say)
	}
	m.doubt(result)
	again = m.learn(result, time.Now().Round(0))
	if err := m.networks(); err != nil {
		m.log.Warn("the addresses of this machine cannot be read", telemetry.AttrReason, err)
	}
	r := m.parts.Load().routing
	if err := m.govern(r); err != nil {
		m.log.Error("the policy between peers is refused; the last good one stays", telemetry.AttrReason, err)
	}
	r.Set(m.input(result))
	m.tunnels()
	m.lookOutside()
	return again
}

// networks reads those of this machine's links.
func (m *Mesh) networks() error {
	all, err := machine.Addresses()
	if err != nil {
		return err
	}
	var links []netip.Prefix
	for _, a := range all {
		if a.Interface != m.cfg.Options.Link && a.Up && !a.Prefix.IsSingleIP() && !a.Prefix.Addr().IsLinkLocalUnicast() && !a.Prefix.Addr().IsLoopback() {
			links = append(links, a.Prefix.Masked())
		}
	}
	local, err := m.around()
	if err != nil {
		return err
	}
	m.mu.Lock()
	before := m.local.Withheld(m.cfg.Announce.Ranges)
	m.links, m.local = links, local
	after := local.Withheld(m.cfg.Announce.Ranges)
	m.mu.Unlock()
	if !slices.Equal(before, after) { // the plan says why
		ring(m.say)
	}
	return nil
}

// needs are the services that this node needs outside of the mesh, whose addresses an
// operator has written down. What a name means says a resolver, whom nobody has asked to
// say what is sent in clear.
func (m *Mesh) needs() []topology.Service {
	m.mu.Lock()
	texts := m.set.STUN
	m.mu.Unlock()
	return append(servicesOf(texts, m.attach.Addresses(), m.cfg.Services), m.cfg.Needs...)
}

func servicesOf(stun, hubs []string, services []endpoint.Server) []topology.Service {
	var out []topology.Service
	add := func(what, hostPort string) {
		host, _, err := net.SplitHostPort(hostPort)
		if err != nil {
			return
		}
		a, err := netip.ParseAddr(host)
		a = a.Unmap().WithZone("")
		same := func(s topology.Service) bool { return s.Addr == a }
		if err == nil && !a.IsLoopback() && !a.IsUnspecified() && !slices.ContainsFunc(out, same) {
			out = append(out, topology.Service{Addr: a, What: what + " " + hostPort})
		}
	}
	for _, h := range hubs {
		add("the hub", h)
	}
	for _, s := range services {
		add("the discovery service", s.HostPort)
	}
	for _, s := range stun {
		add("the STUN server", s)
	}
	return out
}

// input is what is planned with.
func (m *Mesh) input(result roster.Result) topology.Input {
	m.mu.Lock()
	m.stated = result.Stated
	m.mu.Unlock()
	self := result.Self
	self.Facts = m.facts()
	m.mu.Lock()
	o := m.cfg.Options
	o.Overlay6 = m.overlay.Prefix
	o.Bypass, o.Accept, o.Exclude = m.set.Options.Bypass, m.set.Options.Accept, m.set.Options.Exclude
	closed := m.ranges.known.closed()
	m.mu.Unlock()
	in := topology.Input{Self: routing.MemberOf(self), Members: m.believed(result.Members), Options: o, Health: map[string]topology.Health{}, Closed: closed}
	for _, p := range m.peering.Healths() {
		if h := (topology.Health{Down: p.Down, MTU: p.MTU, At: p.At}); h.Down || h.MTU > 0 || len(h.At) > 0 {
			in.Health[p.ID] = h
		}
	}
	members := map[string]*roster.Member{}
	for i, t := range in.Members {
		members[t.ID] = &result.Members[i]
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.members, m.own, m.disputed = members, in.Self, result.Conflicts
	m.lazy = len(members) > m.set.LazyAbove
	return in
}

// believed are members as topology sees them. Who only says that it has a key of this node
// has none: whoever knows our public key could keep us from starting.
func (m *Mesh) believed(members []roster.Member) []topology.Member {
	m.mu.Lock()
	own := m.key.public
	m.mu.Unlock()
	out := routing.MembersOf(members)
	for i := range out {
		if out[i].Key == own && !proven(&members[i]) {
			out[i].Key = member.Key{}
		}
	}
	return out
}

// planned is told who has a tunnel, before the kernel sends anything there.
func (m *Mesh) planned(peers topology.Peers) {
	m.mu.Lock()
	m.peers, m.known = peers, true
	m.mu.Unlock()
	m.tunnels()
	if p := m.parts.Load(); p != nil {
		p.endpoints.Refresh()
	}
}

// tunnels gives peering who the peers are, and where they may be.
func (m *Mesh) tunnels() {
	m.giving.Lock()
	defer m.giving.Unlock()
	cluster, hubs := m.attach.Cluster(), m.attach.Hubs()
	p := m.parts.Load()
	m.mu.Lock()
	if !m.known { // nobody is not the same as not known yet: a link that was taken over has peers
		m.mu.Unlock()
		return
	}
	s := sight{links: m.links, own: m.own.Addresses, overlay: m.insideLocked()}
	if p != nil {
		s.has = p.carrier.Has
	}
	var out []peering.Peer
	for _, t := range m.peers {
		r := m.members[t.ID]
		if r == nil {
			continue // it has just gone, or come: the next look has both
		}
		out = append(out, peering.Peer{
			ID: t.ID, Name: t.Node, Key: t.Key, Proven: proven(r), Ranges: t.Allowed, Sources: t.Sources, Secrets: m.secrets(t.ID),
			Facts: meshpath.Facts{Candidates: s.candidates(r), Relays: meet(cluster, hubs, r), Probes: m.probes() && r.Mesh >= limit.MeshVersion, Lazy: m.lazy},
		})
	}
	m.mu.Unlock()
	err := m.peering.Set(out)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil && m.refused == nil {
		m.log.Warn("some peers get no tunnel", telemetry.AttrReason, err)
	}
	m.refused = err
}

// proven reports whether a member is shown to have the key that it announces.
func proven(r *roster.Member) bool {
	return slices.ContainsFunc(r.Entries, func(e roster.Entry) bool { return e.Proven })
}

// secrets are those that this node and a member have, the newest first. Of a member that
// no service tells of under a secret all of ours are tried.
func (m *Mesh) secrets(id string) func(own, peer member.Key) []peering.Secret {
	under := m.finder.Under(id)
	return func(own, peer member.Key) []peering.Secret {
		var out []peering.Secret
		for _, k := range m.cfg.Keys {
			if len(under) == 0 || slices.Contains(under, k.Cluster()) {
				psk := k.PairPSK(own, peer)
				out = append(out, peering.Secret{ID: k.Cluster(), PSK: tunnel.NewSecret(psk)})
			}
		}
		return out
	}
}

// inside is all that lies in the mesh.
func (m *Mesh) inside() []netip.Prefix {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := m.insideLocked()
	for _, p := range m.peers {
		out = append(out, p.Allowed...)
	}
	return out
}

func (m *Mesh) insideLocked() []netip.Prefix {
	out := []netip.Prefix{m.overlay.Prefix}
	if four := m.overlay.Four; four.IsValid() { // not the pool: a provider's NAT may use the rest of it
		out = append(out, netip.PrefixFrom(four, four.BitLen()))
	}
	return out
}

// needed says whether some peer may come by what a NAT maps.
func (m *Mesh) needed() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.peers) > 0
}

// stun lists the STUN servers: those of the configuration, of hubs and of discovery.
func (m *Mesh) stun() []endpoint.Server {
	m.mu.Lock()
	texts := m.set.STUN
	m.mu.Unlock()
	return serversOf(texts, m.attach.Addresses(), m.cfg.Services)
}

// without are the patterns of interfaces whose addresses are not told.
func (m *Mesh) without() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.set.Without
}

func serversOf(texts, hubs []string, services []endpoint.Server) []endpoint.Server {
	var out []endpoint.Server
	for _, t := range texts {
		out = append(out, endpoint.Server{Name: t, HostPort: t})
	}
	for _, a := range hubs {
		out = append(out, endpoint.Server{Name: "hub " + a, HostPort: a})
	}
	return append(out, services...)
}

// relays are the hubs whose latency a check of the network measures.
func (m *Mesh) relays() []netcheck.Relay { return relaysOf(m.attach) }

func relaysOf(a *attach.Attach) []netcheck.Relay {
	var out []netcheck.Relay
	for _, hub := range a.Addresses() {
		out = append(out, netcheck.Relay{Name: hub, Measure: a.Measure(hub)})
	}
	return out
}

// called are the endpoints that a call names.
func (m *Mesh) called() []netip.AddrPort {
	p := m.parts.Load()
	if p == nil {
		return nil
	}
	var out []netip.AddrPort
	for _, e := range p.endpoints.List() {
		out = append(out, e.At)
	}
	return out
}

// caller is the identity of a peer in its certificate, once a hub has vouched for it.
func (m *Mesh) caller(p topology.Peer) string {
	if m.peering.Certified(p.ID) {
		return m.attach.Named(p.Node)
	}
	return ""
}

// govern puts the policy into force that is meant for this node's cluster: that of its
// certificate. Without one no allow rule that names clusters is meant for it, and each deny rule is.
func (m *Mesh) govern(r *routing.Routing) error {
	cluster := m.attach.Cluster()
	m.mu.Lock()
	same, files := m.governed != nil && *m.governed == cluster, m.set.Policies
	m.mu.Unlock()
	if same {
		return nil
	}
	m.mu.Lock()
	m.governed = &cluster // refused or not: a file that is bad is read again when it is loaded again
	m.mu.Unlock()
	return r.Reload(files, cluster)
}
