// SPDX-License-Identifier: Apache-2.0

package member

import (
	"slices"
	"strings"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
	"github.com/tombolo-io/tombolo/api/v1alpha1"
)

// leastEntries and allEntries bound what the copy of a NodeConfig has of each list: the host cluster has one of each
// node of all clusters, and an entry has some 100 bytes. 100 clusters of 100 nodes have 13 of each.
const leastEntries, allEntries = 8, 1 << 17

// entries is how many of each list a copy has.
func entries(nodes int) int { return max(leastEntries, allEntries/max(1, nodes)) }

func shortSpec(s v1alpha1.NodeConfigSpec, most int) v1alpha1.NodeConfigSpec {
	var more v1alpha1.NodeConfigMore
	if s.More != nil {
		more = *s.More
	}
	s.Peers = short(s.Peers, most, &more.Peers)
	if s.Peers = slices.Clone(s.Peers); most < mostRanges {
		for i := range s.Peers {
			p := &s.Peers[i]
			p.Ranges = short(p.Ranges, most, &p.MoreRanges)
		}
	}
	s.Routes = short(s.Routes, most, &more.Routes)
	s.XfrmPolicies = short(s.XfrmPolicies, most, &more.XfrmPolicies)
	s.XfrmStates = short(s.XfrmStates, most, &more.XfrmStates)
	s.IPsetsAvoidMasq = short(s.IPsetsAvoidMasq, most, &more.IPsetsAvoidMasq)
	if more != (v1alpha1.NodeConfigMore{}) {
		s.More = &more
	}
	return s
}

// mostRanges is how many ranges a peer has at most.
const mostRanges = 256

// shortStatus keeps the tunnels that are down.
func shortStatus(s objects.NodeConfigStatus, most int) objects.NodeConfigStatus {
	if len(s.Tunnels) > most {
		s.Tunnels = slices.Clone(s.Tunnels)
		slices.SortStableFunc(s.Tunnels, func(a, b objects.TunnelStatus) int { return rank(a) - rank(b) })
		s.Tunnels = short(s.Tunnels, most, &s.MoreTunnels)
		slices.SortFunc(s.Tunnels, func(a, b objects.TunnelStatus) int { return strings.Compare(a.Peer, b.Peer) })
	}
	s.Differences = s.Differences[:min(len(s.Differences), most)]
	return s
}

func rank(t objects.TunnelStatus) int {
	if t.State == objects.TunnelDown {
		return 0
	}
	return 1
}

// short are the first of a list; the others are counted.
func short[T any](in []T, most int, more *int32) []T {
	if over := len(in) - most; over > 0 {
		*more += int32(over)
		return in[:most:most]
	}
	return in
}
