// SPDX-License-Identifier: Apache-2.0

package report

import (
	"net/netip"

	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/base/plan"
)

// The states of a tunnel, as the kind has them.
const (
	Up      = "up"      // packets pass, directly
	Relayed = "relayed" // packets pass, through the relay of a hub
	Down    = "down"    // no packet passes
	Unused  = "unused"  // nobody sends anything
)

// Facts are what a node plans and has.
type Facts struct {
	// Linked says that the node's own cluster is a linked one. A node of no linked cluster has no NodeConfig.
	Linked bool
	// Whole says that all is known of linked clusters: a node that is not Linked is one of none.
	Whole  bool
	Engine member.Engine // of the node
	Link   string        // of the mesh
	Table  int           // of the kernel's routes into it
	Peers  []Peer
	// Others are the ranges of other clusters, as they are known here, Routed all that is sent into the mesh, and Kept the
	// sets with ranges to which packets of pods keep their source.
	Others []netip.Prefix
	Routed []plan.Range
	Kept   []plan.Set

	NIC *NIC // that leads to other clusters; nil: nobody says which one does

	InForce bool        // the kernel has what is planned
	Why     string      // it has not
	Differs []plan.Step // that would mend it; none where the kernel cannot be read
}

// SA is a tunnel of IPsec: what is sent and what is received.
type SA struct {
	Local, Remote netip.Addr
	Number        uint32 // of the peer, in the kernel's policies and states
	In, Out       uint32 // SPIs; Out is 0 of one by which nothing is sent any more
	Algorithm     string // as the kernel calls it
	Sends         bool   // packets go by it
}

// Peer is a node with a tunnel.
type Peer struct {
	// Name is that of the ClusterNode; empty: it is a node of the own cluster.
	Name      string
	Key       member.Key
	Engine    member.Engine    // by which it is reached
	Endpoints []netip.AddrPort // in the order in which they are tried
	// Ranges are what it is reached for, and Allowed what of them, and of addresses of the mesh, WireGuard sends to it:
	// where ranges are within each other, the most specific one counts.
	Ranges, Allowed []netip.Prefix
	Overlay         [2]netip.Addr // its IPv4 and IPv6 address in the mesh; not valid: it has none
	MTU             int           // of routes to it; 0: the link's
	SAs             []SA          // its tunnels of IPsec
	State           string        // Up and so on
	Reason          string        // of the state, for people
	Alone           bool          // it reaches no other node of its cluster, as it says
}
