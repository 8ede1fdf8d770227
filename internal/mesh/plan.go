// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"iter"
	"slices"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
	"github.com/tombolo-io/tombolo/internal/discovery/seal"
	meshpath "github.com/tombolo-io/tombolo/internal/mesh/path"
	"github.com/tombolo-io/tombolo/internal/mesh/peering"
	"github.com/tombolo-io/tombolo/internal/mesh/topology"
	"github.com/tombolo-io/tombolo/internal/mesh/tunnel"
)

// plan is what routing plans with; it notes the members that are in it.
func (s *state) plan(now time.Time) topology.Input {
	result := s.world.result
	o := s.cfg.Options
	o.Overlay6 = s.overlay.Prefix
	o.Bypass, o.Accept, o.Exclude = s.set.Options.Bypass, s.set.Options.Accept, s.set.Options.Exclude
	o.Masquerade = s.set.Options.Masquerade
	in := topology.Input{
		Self: s.facts(), Members: believed(result.Members, s.key.public), Options: o,
		Health: s.world.health, Closed: s.ranges.known.closed(),
	}
	s.linked = s.linked.look(s.world.linked, in.Members, s.world.health, now)
	s.linked.give(&in)
	s.members = make(map[string]*roster.Member, len(in.Members))
	for i, t := range in.Members {
		s.members[t.ID] = &result.Members[i]
	}
	s.self = in.Self
	return in
}

// believed are the members as topology takes them, those that are stale too: their packets must not go in clear. An id
// is unique within its tier only, so of two with one id the one of the lower tier gets another. A member that only says
// that it has this node's own key has none: anyone who knows our public key could keep us from starting.
func believed(members []roster.Member, own member.Key) []member.Facts {
	out := make([]member.Facts, 0, len(members))
	highest := map[string]roster.Tier{}
	for i := range members {
		highest[members[i].ID] = max(highest[members[i].ID], members[i].Tier)
	}
	for i := range members {
		m := &members[i]
		f := m.Facts
		if m.Tier != highest[m.ID] {
			f.ID += " (" + m.Tier.String() + ")"
		}
		if f.Key == own && !m.Proven {
			f.Key = member.Key{}
		}
		out = append(out, f)
	}
	return out
}

// against is what a member of these facts is compared with: those that are there now.
func (s *state) against(self member.Facts) topology.Input {
	var present []roster.Member
	for _, r := range s.world.result.Members {
		if !r.Stale {
			present = append(present, r)
		}
	}
	return topology.Input{Self: self, Members: believed(present, s.key.public)}
}

// tunnels has the peers that routing has planned get their tunnels, with the ways to them that are
// known. No peers is not the same as not known yet: a link that was taken over has peers.
func (s *state) tunnels(do *effects) {
	if !s.planned {
		return
	}
	at := s.viewpoint()
	for _, t := range s.peers {
		r := s.members[t.ID]
		if r == nil {
			continue // it has just gone, or come: the next look has both
		}
		do.peers = append(do.peers, peering.Peer{
			ID: t.ID, Name: t.Node, Key: t.Key, Pin: t.Pin, Engine: s.carried(t.Engine).by,
			Proven:   r.Proven && r.Key == t.Key,
			Together: s.linked.together[t.ID], Ranges: t.Allowed, Sources: t.Sources, Secrets: s.secretsOf(r, t.ID),
			Facts: meshpath.Facts{
				Candidates: at.candidates(r), Relays: meet(s.world.cluster, s.world.hubs, r),
				Probes: r.Mesh >= limit.MeshVersion, Lazy: s.lazy() && !s.linked.doors[t.ID],
				Soon: s.linked.doors[t.ID] || s.linked.together[t.ID],
			},
		})
	}
	do.tunnels = true
}

func (s *state) viewpoint() viewpoint {
	return viewpoint{links: s.world.links(s.cfg.Options.Link), own: s.self.Addresses, overlay: s.overlay.ranges(),
		has: s.world.has}
}

// secretsOf are the secrets that this node shares with a member. One with a secret of its own has no other: none, while
// that cannot be read.
func (s *state) secretsOf(r *roster.Member, id string) func(own, peer member.Key) []peering.Secret {
	if r.Pair.File == "" {
		return pairSecrets(s.secrets, s.world.under[id])
	}
	var own []seal.Keys
	if k, ok := s.world.pairs[r.Pair.File]; ok {
		own = append(own, k)
	}
	return pairSecrets(slices.All(own), nil)
}

// pairSecrets are the secrets that this node shares with a member, the newest first; under has the ids of those with
// which services know the member. All are tried with a member that no service knows.
func pairSecrets(
	secrets iter.Seq2[int, seal.Keys], under []seal.ClusterID,
) func(own, peer member.Key) []peering.Secret {
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
