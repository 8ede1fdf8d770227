// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"net/netip"
	"slices"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/member"
)

// saying is what a node announces about itself beside its configuration.
type saying struct {
	key       member.Key
	pin       member.Pin
	engine    member.Engine
	overlay   overlay
	addresses []netip.Addr      // of the machine, as others may try them
	endpoints []member.Endpoint // the configured ones are among them
	cluster   string            // of the certificate
	hubs      []string
	lost      []string       // linked clusters that it does not reach, as a gateway
	mesh      uint32         // version of the path protocol
	withheld  []netip.Prefix // ranges of the configuration that must not be announced now
	stated    []netip.Prefix // ranges that others say are behind this node
}

// over is what a node announces.
func (s saying) over(base member.Facts) member.Facts {
	out := base
	out.Ranges = slices.DeleteFunc(slices.Clone(base.Ranges),
		func(p netip.Prefix) bool { return slices.Contains(s.withheld, p) })
	out.Mesh = s.mesh
	out.Key, out.Pin, out.Engine = s.key, s.pin, s.engine
	out.Overlay6, out.Overlay4 = s.overlay.Six, s.overlay.Four
	// What a node has in a range of its own is reached through the mesh: if it were announced as an address
	// outside of it, all would refuse the range.
	behind := func(a netip.Addr) bool { return within(out.Ranges, a) || within(s.stated, a) }
	if len(base.Addresses) == 0 {
		out.Addresses = slices.DeleteFunc(slices.Clone(s.addresses), behind)
	}
	out.Addresses = out.Addresses[:min(len(out.Addresses), limit.DiscoveryFacts)]
	out.Endpoints = nil
	for _, e := range slices.Concat(base.Endpoints, s.endpoints) {
		same := func(o member.Endpoint) bool { return o.Addr == e.Addr }
		if e.Kind == member.KindOwn && behind(e.Addr.Addr()) {
			continue
		}
		if len(out.Endpoints) < limit.PathCandidates && !slices.ContainsFunc(out.Endpoints, same) {
			out.Endpoints = append(out.Endpoints, e)
		}
	}
	out.RelayCluster, out.Relays, out.Lost = s.cluster, slices.Clone(s.hubs), s.lost
	if s.cluster == "" {
		out.Relays = nil
	}
	return out
}

// saying is what there is to say now.
func (s *state) saying() saying {
	out := saying{
		key: s.key.public, pin: s.key.certificate.pin, engine: s.cfg.encrypts(), overlay: s.overlay,
		withheld:  s.world.local.Withheld(s.base.Ranges),
		addresses: s.world.addresses, endpoints: s.world.endpoints, lost: s.linked.away(),
	}
	out.mesh, out.cluster, out.hubs = limit.MeshVersion, s.world.cluster, s.world.hubs
	for _, t := range s.world.result.Stated {
		out.stated = append(out.stated, t.Ranges...)
	}
	return out
}

// member is what this node announces.
func (s *state) member() member.Facts { return s.saying().over(s.configured()) }

// configured is what the configuration announces, with the ranges of this node's pods.
func (s *state) configured() member.Facts {
	out := s.base
	out.Ranges = slices.Clone(out.Ranges)
	for _, r := range s.pods.ranges {
		if !slices.Contains(out.Ranges, r) {
			out.Ranges = append(out.Ranges, r)
		}
	}
	return out
}

// facts are those of this node with all that is behind it: the plan refuses what must not be announced, and routes by
// what others state about this node, too.
func (s *state) facts() member.Facts {
	base := s.configured()
	f := s.saying().over(base)
	f.ID = s.id
	f.Ranges, f.Excluded = s.world.result.Behind(base.Ranges, base.Excluded)
	return f
}
