// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"slices"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
	meshpath "github.com/tombolo-io/tombolo/internal/mesh/path"
	"github.com/tombolo-io/tombolo/internal/mesh/peering"
	"github.com/tombolo-io/tombolo/internal/mesh/routing"
	"github.com/tombolo-io/tombolo/internal/mesh/topology"
	"github.com/tombolo-io/tombolo/internal/mesh/tunnel"
)

// plan is what routing plans with; it notes the members that are in it.
func (s *state) plan() topology.Input {
	result := s.world.result
	self := result.Self
	self.Facts = s.facts()
	o := s.cfg.Options
	o.Overlay6 = s.overlay.Prefix
	o.Bypass, o.Accept, o.Exclude = s.set.Options.Bypass, s.set.Options.Accept, s.set.Options.Exclude
	in := topology.Input{
		Self: routing.MemberOf(self), Members: s.believed(result.Members), Options: o,
		Health: s.world.health, Closed: s.ranges.known.closed(),
	}
	s.members = make(map[string]*roster.Member, len(in.Members))
	for i, t := range in.Members {
		s.members[t.ID] = &result.Members[i]
	}
	s.self = in.Self
	return in
}

// believed are members as topology sees them. A member that only says that it has this node's key
// has none: whoever knows our public key could keep us from starting.
func (s *state) believed(members []roster.Member) []topology.Member {
	out := routing.MembersOf(members)
	for i := range out {
		if out[i].Key == s.key.public && !members[i].Proven {
			out[i].Key = member.Key{}
		}
	}
	return out
}

// against is what a member of these facts is compared with: those that are there now.
func (s *state) against(self roster.Facts) topology.Input {
	var present []roster.Member
	for _, r := range s.world.result.Members {
		if !r.Stale {
			present = append(present, r)
		}
	}
	return topology.Input{Self: routing.MemberOf(roster.Member{Facts: self}), Members: s.believed(present)}
}

// tunnels has the peers that routing has planned get their tunnels, with the ways to them that are
// known. No peers is not the same as not known yet: a link that was taken over has peers.
func (s *state) tunnels(do *effects) {
	if !s.planned {
		return
	}
	at := viewpoint{links: s.world.links(s.cfg.Options.Link), own: s.self.Addresses, overlay: s.overlayRanges(),
		has: s.world.has}
	for _, t := range s.peers {
		r := s.members[t.ID]
		if r == nil {
			continue // it has just gone, or come: the next look has both
		}
		do.peers = append(do.peers, peering.Peer{
			ID: t.ID, Name: t.Node, Key: t.Key, Proven: r.Proven && r.Key == t.Key, Ranges: t.Allowed, Sources: t.Sources, Secrets: s.pairSecrets(t.ID),
			Facts: meshpath.Facts{
				Candidates: at.candidates(r), Relays: meet(s.world.cluster, s.world.hubs, r),
				Probes: s.probes() && r.Mesh >= limit.MeshVersion, Lazy: s.lazy(),
			},
		})
	}
	do.tunnels = true
}

// pairSecrets are those that this node and a member have, the newest first. Of a member that no
// service knows under a secret all of ours are tried.
func (s *state) pairSecrets(id string) func(own, peer member.Key) []peering.Secret {
	under, secrets := s.world.under[id], s.secrets
	return func(own, peer member.Key) []peering.Secret {
		var out []peering.Secret
		for _, k := range secrets {
			if len(under) == 0 || slices.Contains(under, k.Cluster()) {
				psk := k.PairPSK(own, peer)
				out = append(out, peering.Secret{ID: k.Cluster(), PSK: tunnel.NewSecret(psk)})
			}
		}
		return out
	}
}
