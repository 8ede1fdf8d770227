// SPDX-License-Identifier: Apache-2.0

package limit

// MemberLost bounds the linked clusters that a gateway says it does not reach.
const MemberLost = 256

// MeshRelays bounds the hubs that a node is attached to, and announces.
const MeshRelays = 8

// What a node's configuration of the mesh names.
const (
	// MeshFilter bounds the name of the table of nftables: kernels before 4.14 take no longer one.
	MeshFilter = 31
	// MeshLazy is the number of other members above which peers without traffic are left alone: with
	// 50 a node has 50 handshakes in two minutes, and 50 pings in 20 s. MeshLazyMost is the
	// most that may be chosen: there are never more members.
	MeshLazy, MeshLazyMost = 50, RosterList
)

// What the mesh puts into the kernel.
const (
	// PlanElements is how many ranges of a set one step changes, if they do not overlap:
	// 64 KiB is the most that an attribute of netlink carries, and a range of IPv6 takes 64 bytes.
	PlanElements = 256
	// PolicyLines bounds the rules of nftables that a policy between peers becomes: a new
	// connection meets them one after the other, some hundred nanoseconds each.
	PolicyLines = 4096
)
