// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/link/reach"
	"github.com/tombolo-io/tombolo/internal/link/report"
	"github.com/tombolo-io/tombolo/internal/mesh/ipsectunnel"
	"github.com/tombolo-io/tombolo/internal/mesh/path"
	"github.com/tombolo-io/tombolo/internal/mesh/peering"
	"github.com/tombolo-io/tombolo/internal/mesh/routing"
	"github.com/tombolo-io/tombolo/internal/mesh/topology"
)

// LinkReport is what this node plans and has towards linked clusters; nil: it has not planned anything yet.
func (m *Mesh) LinkReport() *report.Facts {
	p, s := m.parts.Load(), m.state.Load()
	if p == nil || !s.planned {
		return nil
	}
	want, ok := p.routing.Wanted()
	if !ok {
		return nil
	}
	out := s.linkReport(p.routing.Status(), m.reports(), m.tunnels())
	out.Routed, out.Kept = topology.Routed(want), topology.Kept(want)
	return &out
}

// linkReport has what the state and its parts say.
func (s *state) linkReport(r routing.Status, ways map[string]peering.Report,
	tunnels map[member.Key]ipsectunnel.State) report.Facts {
	l, o := s.linked, s.cfg.Options
	out := report.Facts{Engine: s.cfg.encrypts(), Link: o.Link, Table: o.Table, Others: l.plan.Linked,
		Whole: l.view.Whole, NIC: s.world.nic, InForce: r.InForce, Differs: r.Differs}
	if r.Fault != nil {
		out.Why = r.Fault.Error()
	}
	out.Linked = slices.ContainsFunc(l.view.Clusters,
		func(c reach.Cluster) bool { return c.Name == l.view.Self.Cluster })
	nodes := map[string]reach.Node{}
	for _, n := range l.view.Nodes {
		nodes[n.String()] = n
	}
	at := s.viewpoint()
	for _, t := range s.peers {
		r := s.members[t.ID]
		if r == nil {
			continue // it has just gone, or come
		}
		peer := report.Peer{Key: t.Key, Allowed: t.Allowed, Overlay: [2]netip.Addr{t.Overlay4, t.Overlay6}, MTU: t.MTU}
		peer.State, peer.Reason = wayOf(ways[t.ID])
		peer.Alone = ways[t.ID].Alone
		by := s.carried(t.Engine)
		if peer.Engine = by.by; by.why != "" {
			peer.Reason += "; by " + by.by.String() + ": " + by.why
		}
		if s := tunnels[t.Key]; s.Why != "" {
			peer.Reason += "; esp " + espText(s)
		}
		for _, x := range tunnels[t.Key].Tunnels {
			peer.SAs = append(peer.SAs, report.SA{Local: x.Local, Remote: x.Remote.Addr(), Number: x.Number, In: x.In,
				Out: x.Out, Algorithm: x.Cipher.Kernel(), Sends: x.Sends})
		}
		n, other := nodes[t.Node]
		if other = other && n.Cluster != l.view.Self.Cluster && n.Key == t.Key; other {
			peer.Name = t.Node
			for _, c := range at.candidates(r) {
				peer.Endpoints = append(peer.Endpoints, c.Addr)
			}
		} else {
			n.Name = reach.Name{Cluster: l.view.Self.Cluster, Node: r.Nodename}
		}
		peer.Ranges = l.plan.Send[n.Name]
		out.Peers = append(out.Peers, peer)
	}
	return out
}

// wayOf is the state of a tunnel, and why.
func wayOf(r peering.Report) (state, reason string) {
	switch {
	case r.Problem != nil:
		return report.Down, r.Problem.Error()
	case r.State == path.Direct:
		return report.Up, strings.TrimSuffix("at "+r.Path.String()+": "+r.Why, ": ")
	case r.State == path.Relayed:
		return report.Relayed, "by " + r.Path.String() + ": " + r.Why
	case r.State == path.Idle:
		return report.Unused, r.Why
	case r.State == "":
		return report.Down, "it has only just become known"
	}
	return report.Down, r.Why
}
