// SPDX-License-Identifier: Apache-2.0

// Package share decides what a linked cluster states about itself to the others: its nodes, which of them are its
// gateways, and its ranges. It does not read or write objects: it knows values only.
package share

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
)

// Grace is how long a gateway that is not ready keeps its role.
const Grace = time.Minute

// Node is a Node of the cluster.
type Node struct {
	Name      string
	Labels    map[string]string
	Ready     bool
	Silent    bool           // the mesh on it has not renewed its Member for as long as the lease
	Cut       bool           // it reports tunnels to other clusters, and that no packet passes through any
	Passes    bool           // it reports one through which packets pass
	Addresses []netip.Addr   // of the machine, as the Node states them
	Pods      []netip.Prefix // of its pods, as they were learned
	NIC       NIC            // where spec.nics has an entry for it
}

// NIC is what a node says of its interface that leads to other clusters. The zero value: it has said nothing yet.
type NIC struct {
	Addresses []netip.Addr // the best first; none: it has not found it
	Reason    string       // why not
}

// Range is one of the cluster, and where it was learned.
type Range struct {
	Prefix netip.Prefix
	From   string
}

// Facts is what is known about the cluster. The order of lists does not matter.
type Facts struct {
	Cluster string
	Spec    v1alpha1.ClusterSpec
	Nodes   []Node
	Members map[string]v1alpha1.MemberSpec // by the name of the Node
	// Excludes says whether labels are those of spec.excludeSelector; nil: it cannot be read.
	Excludes       func(map[string]string) bool
	Pods, Services []Range
	Problems       []string // what could not be learned, for people

	Gateways int               // how many
	Selector map[string]string // labels of nodes that may be gateways
	Before   []v1alpha1.ClusterNodeSpec
	Away     map[string]time.Time // of the last decision
	Doubts   map[string]Doubt     // likewise
	Now      time.Time
}

// Shared is what others get to know.
type Shared struct {
	Nodes          []Stated // in the order of their names
	Gateways       []string
	Pods, Services []Range
	Verdict
	// Away is since when gateways are not ready. The next decision needs it.
	Away map[string]time.Time
	// Doubts are nodes that were cut off as gateways, likewise.
	Doubts map[string]Doubt
	// Again is when to decide once more if nothing changes; zero: never.
	Again time.Time
}

// Stated is a node as others get to know it.
type Stated struct {
	v1alpha1.ClusterNodeSpec
	Ready bool
}

// Decide says what a cluster states.
func Decide(f Facts) Shared {
	before := map[string]v1alpha1.ClusterNodeSpec{}
	for _, n := range f.Before {
		before[n.NodeName] = n
	}
	var nodes []Node
	for _, n := range f.Nodes {
		if !f.excluded(n, before) {
			nodes = append(nodes, n)
		}
	}
	slices.SortFunc(nodes, func(a, b Node) int { return strings.Compare(a.Name, b.Name) })
	out := Shared{Pods: linkedRanges(f.Spec.IPFamily, f.Pods), Services: linkedRanges(f.Spec.IPFamily, f.Services)}
	if f.Spec.NetworkType == v1alpha1.NetworkGateway {
		out.elect(f, nodes, before)
	}
	shared := sharedAddresses(f.Members)
	for _, n := range nodes {
		s := f.state(n, before[n.Name], shared)
		if slices.Contains(out.Gateways, n.Name) {
			s.Roles = []string{v1alpha1.RoleGateway}
		}
		out.Nodes = append(out.Nodes, s)
	}
	out.Verdict = judge(f, out)
	return out
}

// excluded reports whether a node takes no part. While nobody can say, the same ones do as before.
func (f Facts) excluded(n Node, before map[string]v1alpha1.ClusterNodeSpec) bool {
	if slices.Contains(f.Spec.ExcludeNodes, n.Name) {
		return true
	}
	if f.Excludes == nil {
		_, known := before[n.Name]
		return !known
	}
	return f.Excludes(n.Labels)
}

// state is a node without its role.
func (f Facts) state(n Node, before v1alpha1.ClusterNodeSpec, shared map[netip.Addr]bool) Stated {
	m := f.Members[n.Name]
	s := Stated{Ready: n.Ready, ClusterNodeSpec: v1alpha1.ClusterNodeSpec{
		ClusterName: f.Cluster, NodeName: n.Name,
		ClusterNodeTunnel: v1alpha1.ClusterNodeTunnel{
			PublicKey: m.PublicKey, Pin: m.Pin, Engine: m.Engine, Overlay6: m.Overlay6, Overlay4: m.Overlay4,
			Endpoints: m.Endpoints, Mesh: m.Mesh, RelayCluster: m.RelayCluster, Relays: m.Relays,
		},
	}}
	pods := slices.Clone(n.Pods)
	slices.SortFunc(pods, netip.Prefix.Compare)
	for _, p := range slices.Compact(pods) {
		if linked(f.Spec.IPFamily, p) {
			s.PodCIDRs = append(s.PodCIDRs, p.String())
		}
	}
	own := n.Addresses
	if named(f.Spec, n.Name) && len(n.NIC.Addresses) > 0 { // else nothing is left out
		own = n.NIC.Addresses
		s.Endpoints = reachedAt(own, m)
	}
	s.IP, s.IP6 = ownAddresses(own)
	if a := f.Spec.NodeElasticIPMap[n.Name]; a != "" {
		s.ElasticIP = a
	} else {
		s.ElasticIP = elastic(n, m, before.ElasticIP, shared)
	}
	return s
}

// named reports whether the spec says which interface of a node leads to others.
func named(s v1alpha1.ClusterSpec, node string) bool {
	n := s.NICOf(node)
	return n.Interface != "" || n.Reach != ""
}

// reachedAt are the endpoints of a member without those at other addresses of the machine itself. Where others see it
// stays: which interface that is of is not known.
func reachedAt(own []netip.Addr, m v1alpha1.MemberSpec) (out []string) {
	for _, text := range m.Endpoints {
		e, err := netip.ParseAddrPort(text)
		if a := e.Addr().Unmap(); err == nil && slices.Contains(m.Addresses, a.String()) && !slices.Contains(own, a) {
			continue
		}
		out = append(out, text)
	}
	return out
}

// ownAddresses are the first ones of each family.
func ownAddresses(all []netip.Addr) (ip, ip6 string) {
	for _, a := range all {
		switch {
		case a.Is4() && ip == "":
			ip = a.String()
		case a.Is6() && !a.Is4In6() && ip6 == "":
			ip6 = a.String()
		}
	}
	return ip, ip6
}

// elastic is a public address that a node states, and that is none of its own: that of a NAT in front of it. It stays
// the same while the node states it. An address that several nodes state is not for one alone.
func elastic(n Node, m v1alpha1.MemberSpec, before v1alpha1.Address, shared map[netip.Addr]bool) v1alpha1.Address {
	var found []netip.Addr
	for _, a := range publicAddresses(m) {
		if !slices.Contains(n.Addresses, a) && !shared[a] {
			found = append(found, a)
		}
	}
	if len(found) == 0 {
		return ""
	}
	slices.SortFunc(found, netip.Addr.Compare)
	for _, a := range found {
		if a.String() == string(before) {
			return before
		}
	}
	return v1alpha1.Address(found[0].String())
}

// publicAddresses are those of a member's endpoints that are public, and not the machine's own.
func publicAddresses(m v1alpha1.MemberSpec) (out []netip.Addr) {
	own := map[netip.Addr]bool{}
	for _, text := range m.Addresses {
		if a, err := netip.ParseAddr(text); err == nil {
			own[a.Unmap()] = true
		}
	}
	carrier := netip.PrefixFrom(netip.AddrFrom4([4]byte{100, 64}), 10) // of the NATs of providers
	for _, text := range m.Endpoints {
		e, err := netip.ParseAddrPort(text)
		a := e.Addr().Unmap()
		if err != nil || own[a] || !a.IsGlobalUnicast() || a.IsPrivate() || a.Zone() != "" || carrier.Contains(a) ||
			slices.Contains(out, a) {
			continue
		}
		out = append(out, a)
	}
	return out
}

// sharedAddresses are the public addresses that several members state.
func sharedAddresses(members map[string]v1alpha1.MemberSpec) map[netip.Addr]bool {
	seen := map[netip.Addr]bool{}
	for _, m := range members {
		for _, a := range publicAddresses(m) {
			_, again := seen[a]
			seen[a] = again
		}
	}
	return seen
}

// linked reports whether a range is of an IP version that is linked.
func linked(family string, p netip.Prefix) bool {
	switch family {
	case v1alpha1.FamilyIPv4:
		return p.Addr().Is4()
	case v1alpha1.FamilyIPv6:
		return p.Addr().Is6()
	}
	return true
}

func linkedRanges(family string, in []Range) (out []Range) {
	for _, r := range in {
		if linked(family, r.Prefix) {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b Range) int {
		return cmp.Or(a.Prefix.Compare(b.Prefix), cmp.Compare(a.From, b.From))
	})
	return slices.CompactFunc(out, func(a, b Range) bool { return a.Prefix == b.Prefix })
}
