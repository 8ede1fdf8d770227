// SPDX-License-Identifier: Apache-2.0

package member

import (
	"cmp"
	"net/netip"
)

// Facts is what is said about a member: by itself, by its operator, or by Kubernetes. The packages that read it from
// bytes or text have checked it: addresses are addresses, lists are bounded, texts can be shown. A zero value says
// nothing.
type Facts struct {
	ID            string         `json:"id"` // unique among the members of its source's tier
	Node          string         `json:"node,omitempty"`
	Hostname      string         `json:"hostname,omitempty"`
	Nodename      string         `json:"nodename,omitempty"` // of the Kubernetes Node
	Key           Key            `json:"publicKey,omitzero"`
	Pin           Pin            `json:"pin,omitzero"`     // of its certificate for IPsec; an older member has none
	Engine        Engine         `json:"engine,omitempty"` // what encrypts its packets; empty: WireGuard
	Overlay6      netip.Addr     `json:"overlay6,omitzero"`
	Overlay4      netip.Addr     `json:"overlay4,omitzero"`
	Addresses     []netip.Addr   `json:"addresses,omitempty"` // of its own links, outside the mesh
	Endpoints     []Endpoint     `json:"endpoints,omitempty"`
	Ranges        []netip.Prefix `json:"ranges,omitempty"`   // behind it
	Excluded      []netip.Prefix `json:"excluded,omitempty"` // taken out of Ranges
	Role          Role           `json:"role,omitempty"`
	APIServerPort uint16         `json:"apiServerPort,omitempty"`
	OS            string         `json:"operatingSystem,omitempty"`
	Software      string         `json:"software,omitempty"`
	Mesh          uint32         `json:"mesh,omitempty"`         // version of the path protocol; 0: plain WireGuard
	RelayCluster  string         `json:"relayCluster,omitempty"` // of its certificate at hubs; empty: it uses no relay
	Relays        []string       `json:"relays,omitempty"`       // the hubs that it is connected to
	Clusters      []string       `json:"clusters,omitempty"`     // ids of the cluster secrets that it says it has
	Pair          Pair           `json:"pair,omitzero"`          // the secret that it shares with this node alone
	Lost          []string       `json:"lost,omitempty"`         // linked clusters that it does not reach, as a gateway
	Observed      []Observation  `json:"-"`                      // where it has seen other members
}

// Pair names the secret of a pair of nodes, which takes the place of the cluster's between them. The zero value is
// none.
type Pair struct {
	File string `json:"file"`
	ID   string `json:"id,omitempty"` // of the secret; empty: it has not been read
}

// Endpoint is a place where a member may be reached. WireGuard proves who answers there, so anyone may name one.
type Endpoint struct {
	Addr netip.AddrPort `json:"addr"`
	Kind Kind           `json:"kind"`
}

// Kind is how an endpoint is known.
type Kind string

// The kinds, the best known first. What this version does not know is KindOther.
const (
	KindOwn      Kind = "own"      // an address of the member's own interface
	KindStatic   Kind = "static"   // configured by its operator
	KindMapped   Kind = "mapped"   // as a NAT or a router maps it
	KindObserved Kind = "observed" // as another member saw it
	KindOther    Kind = ""
)

// Engine is what encrypts the packets between members. Two with different ones have no tunnel. One that this version
// does not know keeps its name.
type Engine string

// The engines.
const (
	WireGuard Engine = "wireguard"
	IPsec     Engine = "ipsec"
)

// String is the name, also of what is not stated: members say it only since there is another one than WireGuard.
func (e Engine) String() string { return string(cmp.Or(e, WireGuard)) }

// Same reports whether two members have one engine.
func (e Engine) Same(o Engine) bool { return e.String() == o.String() }

// Role is what a node is to Kubernetes.
type Role string

// The roles. What this version does not know is RoleNone.
const (
	RoleNone         Role = ""
	RoleControlPlane Role = "controlplane"
	RoleWorker       Role = "worker"
)

// Observation is where a member has seen the holder of a key.
type Observation struct {
	Key  Key
	Addr netip.AddrPort
}
