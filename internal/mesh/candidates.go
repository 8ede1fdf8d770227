// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"net/netip"
	"slices"

	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
	"github.com/tombolo-io/tombolo/internal/mesh/path"
)

// viewpoint is what this node knows of its own place when it judges where others say
// they are.
type viewpoint struct {
	own     []netip.Addr          // of this machine: nobody else is there
	links   []netip.Prefix        // of this machine's links
	overlay []netip.Prefix        // of the mesh
	has     func(netip.Addr) bool // the socket can send to the address's family
}

// candidates are the ways to a member that may be tried: none of the overlay, which would
// lead a path through itself. Those within ranges of peers peering leaves out.
func (v viewpoint) candidates(m *roster.Member) []path.Candidate {
	var out []path.Candidate
	for _, e := range m.Endpoints {
		at := netip.AddrPortFrom(e.Addr.Addr().Unmap(), e.Addr.Port())
		a := at.Addr()
		switch {
		case !at.IsValid() || at.Port() == 0 || a.IsUnspecified() || a.IsMulticast() || a.IsLoopback() ||
			a.IsLinkLocalUnicast():
		case slices.Contains(v.own, a), within(v.overlay, a), v.has != nil && !v.has(a):
		default:
			out = append(out, path.Candidate{Addr: at, Kind: kindOf(e.Kind), Near: v.near(a, e.Kind)})
		}
	}
	return out
}

// near is an address of a link of ours; or a private one that the peer has itself: if
// the peer answers from there, both are in one network.
func (v viewpoint) near(a netip.Addr, kind member.Kind) bool {
	return within(v.links, a) || kind == member.KindOwn && a.IsPrivate()
}

func within(ranges []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Contains(a) })
}

func kindOf(kind member.Kind) path.Kind {
	switch kind {
	case member.KindStatic:
		return path.Static
	case member.KindOwn:
		return path.Own
	case member.KindMapped:
		return path.Mapped
	}
	return path.Observed
}

// meet are the hubs at which both nodes are, in this node's order. Names of hubs mean
// something among nodes whose certificates are of one cluster.
func meet(cluster string, hubs []string, m *roster.Member) []string {
	if cluster == "" || m.RelayCluster != cluster {
		return nil
	}
	var out []string
	for _, h := range hubs {
		if slices.Contains(m.Relays, h) {
			out = append(out, h)
		}
	}
	return out
}
