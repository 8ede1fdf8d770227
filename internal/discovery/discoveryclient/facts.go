// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import (
	"net/netip"

	"github.com/tombolo-io/tombolo/internal/base/untrusted"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
	"github.com/tombolo-io/tombolo/internal/discovery/seal"
)

// factsOf is a checked member as facts of a tier that calls it id.
func factsOf(id string, m seal.Member) roster.Facts {
	f := roster.Facts{
		ID: id, Node: m.Node, Hostname: m.Hostname, Nodename: m.Nodename, Key: m.WireGuard,
		Overlay6: m.Overlay6, Overlay4: m.Overlay4, Addresses: m.Addresses, Ranges: m.Ranges, Excluded: m.Excluded,
		Role: string(m.Role), APIServerPort: m.APIServerPort, OS: m.OperatingSystem, Software: m.Software,
		Mesh: m.Mesh, RelayCluster: m.RelayCluster, Relays: m.Relays,
	}
	for _, e := range m.Endpoints {
		f.Endpoints = append(f.Endpoints, roster.Where{Addr: e.At, Kind: string(e.Kind)})
	}
	return f
}

func observedOf(m seal.Member) []roster.Observation {
	var out []roster.Observation
	for _, o := range m.Observed {
		out = append(out, roster.Observation{Key: o.Key, Addr: o.At})
	}
	return out
}

// MemberOf is what a node may announce of facts that its configuration states.
func MemberOf(f roster.Facts) seal.Member {
	m := seal.Member{
		Node: f.Node, Hostname: f.Hostname, Nodename: f.Nodename, WireGuard: f.Key,
		Overlay6: f.Overlay6, Overlay4: f.Overlay4, Addresses: f.Addresses, Ranges: f.Ranges, Excluded: f.Excluded,
		Role: seal.Role(f.Role), APIServerPort: f.APIServerPort, OperatingSystem: f.OS, Software: f.Software,
		Mesh: f.Mesh, RelayCluster: f.RelayCluster, Relays: f.Relays,
	}
	for _, w := range f.Endpoints {
		m.Endpoints = append(m.Endpoints, seal.Endpoint{At: w.Addr, Kind: seal.Kind(w.Kind)})
	}
	return m
}

// endpointsOf are where an affiliate says it is. In this protocol others may add
// to them, and nobody can tell whose word it is.
func endpointsOf(at []netip.AddrPort) []roster.Where {
	var out []roster.Where
	for _, a := range at {
		out = append(out, roster.Where{Addr: a})
	}
	return out
}

// shown is a text of a service as it may be shown and logged.
func shown(s string) string { return untrusted.Text(s, reasonBytes) }
