// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/plan"
)

// The bounds of a NodeConfig, within those of the kind: etcd takes 1.5 MB, and with these no object has a half of it.
const (
	mostPeers     = 512
	mostEndpoints = 8
	mostRoutes    = 1024
	mostKept      = 1024
	mostPolicies  = 3072
	mostStates    = 1536
	mostRanges    = 256  // of one peer
	allRanges     = 4096 // of all peers, but that each may have leastRanges
	leastRanges   = 4
)

// Spec is the plan.
func Spec(f Facts) (out v1alpha1.NodeConfigSpec) {
	var more v1alpha1.NodeConfigMore
	peers := others(f.Peers)
	peers, more.Peers = first(peers, mostPeers)
	each := min(mostRanges, max(leastRanges, allRanges/max(1, len(peers))))
	for _, p := range peers {
		at := v1alpha1.PlannedPeer{Name: p.Name, Engine: p.Engine.String(), PublicKey: p.Key.String()}
		for _, e := range p.Endpoints[:min(len(p.Endpoints), mostEndpoints)] {
			at.Endpoints = append(at.Endpoints, e.String())
		}
		for _, r := range reached(p, f.Others) {
			if len(at.Ranges) == each {
				at.MoreRanges++
				continue
			}
			at.Ranges = append(at.Ranges, r.String())
		}
		out.Peers = append(out.Peers, at)
		out.XfrmPolicies = append(out.XfrmPolicies, policies(p)...)
		out.XfrmStates = append(out.XfrmStates, states(p)...)
	}
	out.XfrmPolicies, more.XfrmPolicies = first(out.XfrmPolicies, mostPolicies)
	out.XfrmStates, more.XfrmStates = first(out.XfrmStates, mostStates)
	out.Routes, more.Routes = first(routes(f), mostRoutes)
	for _, set := range f.Kept {
		for _, r := range set.Ranges {
			for _, p := range r.Prefixes() {
				out.IPsetsAvoidMasq = append(out.IPsetsAvoidMasq,
					v1alpha1.IPSetEntry{CIDR: v1alpha1.Range(p.String()), Name: set.Name})
			}
		}
	}
	out.IPsetsAvoidMasq, more.IPsetsAvoidMasq = first(out.IPsetsAvoidMasq, mostKept)
	if more != (v1alpha1.NodeConfigMore{}) {
		out.More = &more
	}
	return out
}

// others are the peers of other clusters, by name.
func others(peers []Peer) (out []Peer) {
	for _, p := range peers {
		if p.Name != "" {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b Peer) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// first are the first n, and how many more there are.
func first[T any](in []T, n int) ([]T, int32) {
	n = min(n, len(in))
	return in[:n:n], int32(min(len(in)-n, 1<<30))
}

// reached are the ranges of other clusters that a peer is reached for.
func reached(p Peer, of []netip.Prefix) (out []netip.Prefix) {
	for _, r := range p.Ranges {
		if overlaps(of, r) && overlaps(p.Allowed, r) && !slices.Contains(out, r) {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, compare)
	return out
}

func overlaps(ranges []netip.Prefix, with netip.Prefix) bool {
	return slices.ContainsFunc(ranges, with.Overlaps)
}

func compare(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}

// routes are those of ranges of other clusters. A range that is routed and no peer's is closed.
func routes(f Facts) (out []v1alpha1.PlannedRoute) {
	var linked, held []plan.Range
	for _, p := range f.Others {
		linked = append(linked, plan.RangeOf(p))
	}
	for _, p := range f.Peers {
		for _, r := range reached(p, f.Others) {
			out = append(out, v1alpha1.PlannedRoute{CIDR: v1alpha1.Range(r.String()), Interface: f.Link, Via: via(p, r),
				Table: int64(f.Table), MTU: int32(p.MTU)})
		}
		for _, r := range p.Allowed {
			held = append(held, plan.RangeOf(r))
		}
	}
	linked, held = plan.Unite(linked), plan.Unite(held)
	open := plan.Less(linked, plan.Unite(slices.Clone(f.Routed)))
	for _, r := range plan.Less(plan.Less(linked, open), held) {
		for _, p := range r.Prefixes() {
			out = append(out, v1alpha1.PlannedRoute{CIDR: v1alpha1.Range(p.String()), Closed: true, Interface: f.Link,
				Table: int64(f.Table)})
		}
	}
	slices.SortFunc(out, func(a, b v1alpha1.PlannedRoute) int {
		if a.Closed != b.Closed { // what is lost is what people look for
			return map[bool]int{true: -1, false: 1}[a.Closed]
		}
		return cmp.Or(compare(netip.MustParsePrefix(string(a.CIDR)), netip.MustParsePrefix(string(b.CIDR))),
			cmp.Compare(a.Via, b.Via), cmp.Compare(a.MTU, b.MTU))
	})
	return slices.Compact(out)
}

// via is the gateway of the own cluster by which a range is reached; empty: the node at the tunnel's end has it.
func via(p Peer, r netip.Prefix) v1alpha1.Address {
	a := p.Overlay[0]
	if !r.Addr().Is4() || !a.IsValid() {
		a = p.Overlay[1]
	}
	if p.Name != "" || !a.IsValid() {
		return ""
	}
	return v1alpha1.Address(a.String())
}
