// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/tombolo-io/tombolo/internal/link/check"
	"github.com/tombolo-io/tombolo/internal/link/reach"
)

// Most is towards how many peers a node measures.
const Most = 256

// dnsService is which address of their range clusters give to their DNS Service, by convention (kubeadm, k3s).
const dnsService = 10

// Targets are the peers of a node: those of other clusters, and of its own cluster the gateways by which it reaches
// them. Of more than Most, some of each cluster are taken. The tunnel's addresses are not known here.
//
//	only: the other cluster; empty: all
//	left: how many are left out
func Targets(v reach.View, p reach.Plan, only string) (out []Target, left int) {
	clusters := map[string]reach.Cluster{}
	for _, c := range v.Clusters {
		clusters[c.Name] = c
	}
	var own []Target
	rank := map[string]int{} // nodes of each cluster come in turns
	type ranked struct {
		Target
		rank int
	}
	var all []ranked
	for _, n := range v.Nodes {
		t := Target{Peer: check.Peer{Cluster: n.Cluster, Name: n.String(), Why: n.Doubled}}
		c, linked := clusters[n.Cluster]
		switch {
		case n.Cluster == v.Self.Cluster:
			if n.Gateway && n.Name != v.Self && len(p.Send[n.Name]) > 0 {
				own = append(own, t)
			}
			continue
		case !linked || only != "" && n.Cluster != only:
			continue
		}
		for _, r := range n.Pods {
			r = c.Outside(r)
			if first := r.Addr().Next(); r.Contains(first) { // that of a bridge, by convention
				t.Pods = append(t.Pods, first)
			}
			if !p.Keep[n.Name] && t.Through == "" {
				t.Through = sender(p, r)
			}
		}
		if !p.Keep[n.Name] && t.Through == "" {
			continue // nothing is sent there
		}
		all = append(all, ranked{t, rank[n.Cluster]})
		rank[n.Cluster]++
	}
	slices.SortStableFunc(all, func(a, b ranked) int { return cmp.Compare(a.rank, b.rank) })
	for _, r := range all[:min(len(all), Most)] {
		own = append(own, r.Target)
	}
	slices.SortFunc(own, func(a, b Target) int { return cmp.Compare(a.Name, b.Name) })
	return own, max(len(all)-Most, 0)
}

// sender is the node to which a range is sent; empty: none.
func sender(p reach.Plan, of netip.Prefix) string {
	for to, ranges := range p.Send {
		if slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Bits() <= of.Bits() && r.Contains(of.Addr()) }) {
			return to.String()
		}
	}
	return ""
}

// Servers are the DNS Services of other clusters, as this one reaches them.
//
//	named: addresses that somebody knows better, by cluster
func Servers(v reach.View, only string, named map[string]netip.Addr) (out []Server) {
	for _, c := range v.Clusters {
		if c.Name == v.Self.Cluster || only != "" && c.Name != only {
			continue
		}
		s := Server{Cluster: c.Name, At: named[c.Name]}
		if len(c.Services) > 0 && !s.At.IsValid() {
			at := c.Outside(c.Services[0]).Addr()
			for range dnsService {
				at = at.Next()
			}
			s.At = at
		}
		out = append(out, s)
	}
	return out
}
