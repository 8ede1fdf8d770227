// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"net/netip"
	"slices"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
	"github.com/tombolo-io/tombolo/internal/discovery/seal"
)

// saying is what a node says of itself beside its configuration.
type saying struct {
	key       member.Key
	overlay   overlay
	addresses []netip.Addr    // of the machine, as others may try them
	endpoints []seal.Endpoint // the configured ones are among them
	cluster   string          // of the certificate
	hubs      []string
	mesh      uint32         // version of the path protocol
	withheld  []netip.Prefix // ranges of the configuration that must not be announced now
	stated    []netip.Prefix // ranges that others say are behind this node
}

// over is what a node announces.
func (s saying) over(base seal.Member) seal.Member {
	out := base
	out.Ranges = slices.DeleteFunc(slices.Clone(base.Ranges), func(p netip.Prefix) bool { return slices.Contains(s.withheld, p) })
	out.Mesh = s.mesh
	out.WireGuard = s.key
	out.Overlay6, out.Overlay4 = s.overlay.Six, s.overlay.Four
	// What a node has in a range of its own is reached by the mesh: were it told as an address
	// outside of it, all would refuse the range.
	behind := func(a netip.Addr) bool { return within(out.Ranges, a) || within(s.stated, a) }
	if len(base.Addresses) == 0 {
		out.Addresses = slices.DeleteFunc(slices.Clone(s.addresses), behind)
	}
	out.Addresses = out.Addresses[:min(len(out.Addresses), limit.DiscoveryFacts)]
	out.Endpoints = nil
	for _, e := range slices.Concat(base.Endpoints, s.endpoints) {
		same := func(o seal.Endpoint) bool { return o.At == e.At }
		if e.Kind == seal.KindOwn && behind(e.At.Addr()) {
			continue
		}
		if len(out.Endpoints) < limit.PathCandidates && !slices.ContainsFunc(out.Endpoints, same) {
			out.Endpoints = append(out.Endpoints, e)
		}
	}
	out.RelayCluster, out.Relays = s.cluster, slices.Clone(s.hubs)
	if s.cluster == "" {
		out.Relays = nil
	}
	return out
}

// saying is what there is to say now.
func (m *Mesh) saying() saying {
	s := saying{}
	if m.probes() {
		s.mesh, s.cluster, s.hubs = limit.MeshVersion, m.attach.Cluster(), m.attach.Hubs()
	}
	if p := m.parts.Load(); p != nil {
		s.addresses, s.endpoints = p.endpoints.Addresses(), p.endpoints.List()
		if !m.probes() {
			s.endpoints = append(s.endpoints, m.observed(p.carrier.Port())...)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s.overlay, s.withheld = m.overlay, m.local.Withheld(m.cfg.Announce.Ranges)
	for _, t := range m.stated {
		s.stated = append(s.stated, t.Ranges...)
	}
	s.key = m.key.public
	return s
}

func (m *Mesh) member() seal.Member {
	s := m.saying()
	return s.over(m.announcing(s))
}

// announcing is what the configuration states of this node, with the ranges of its pods.
func (m *Mesh) announcing(s saying) seal.Member {
	m.mu.Lock()
	base := m.cfg.Announce
	m.mu.Unlock()
	base.Ranges = m.withPods(base, s)
	return base
}

// facts are those of the member, as the roster has them, with all that is behind it: what
// must not be announced the plan refuses, and what others say of it they are routed by.
func (m *Mesh) facts() roster.Facts {
	s := m.saying()
	base := m.announcing(s)
	f := m.factsOf(s.over(base))
	m.mu.Lock()
	defer m.mu.Unlock()
	r := roster.Result{Stated: m.stated}
	f.Ranges, f.Excluded = r.Behind(base.Ranges, base.Excluded)
	return f
}

func (m *Mesh) factsOf(s seal.Member) roster.Facts {
	f := roster.Facts{
		ID: m.id, Node: s.Node, Key: s.WireGuard,
		Overlay6: s.Overlay6, Overlay4: s.Overlay4, Addresses: s.Addresses, Ranges: s.Ranges, Excluded: s.Excluded,
	}
	for _, e := range s.Endpoints {
		f.Endpoints = append(f.Endpoints, roster.Where{Addr: e.At, Kind: string(e.Kind)})
	}
	return f
}

// Introduce has the finder say from its first word on who this node was when it ran last,
// and must come before it runs: a member whose key is not known takes no part, and what
// others send to its ranges would go in clear until the mesh is up. Who has never run says
// nothing yet.
func (m *Mesh) Introduce() {
	if !m.overlayNow().Six.IsValid() {
		return
	}
	if err := m.networks(); err != nil {
		m.log.Warn("the addresses of this machine cannot be read", telemetry.AttrReason, err)
	}
	m.announce()
}

// announce says what there is to say now.
func (m *Mesh) announce() {
	m.prove()
	err := m.finder.Announce(m.member())
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil && m.silent == nil {
		m.log.Error("what is new of this node is not announced", telemetry.AttrReason, err)
	}
	m.silent = err
}

// followSelf announces what is new of this node, until ctx ends.
func (m *Mesh) followSelf(ctx context.Context) error {
	for {
		m.announce()
		ring(m.look) // what we have ourselves counts in the plan
		select {
		case <-m.say:
		case <-ctx.Done():
			return nil
		}
	}
}

// prove has the finder prove the key that is announced.
func (m *Mesh) prove() {
	m.mu.Lock()
	k := m.key.proof
	m.mu.Unlock()
	m.finder.Prove(k)
}
