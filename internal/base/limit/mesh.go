// SPDX-License-Identifier: Apache-2.0

package limit

// MeshRelays bounds the hubs that a node is attached to, and announces.
const MeshRelays = 8

// What a node's configuration of the mesh names.
const (
	// MeshRanges bounds the ranges that a node accepts, and those that it excludes: each
	// is looked at for each range of each member.
	MeshRanges = 256
	// MeshServers bounds the addresses of further STUN servers: each is resolved again and again.
	MeshServers = 16
	// MeshPatterns bounds patterns of interfaces, which each address is compared with.
	MeshPatterns = 64
	// MeshPolicies bounds files of policies: each is watched.
	MeshPolicies = 16
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
	// PlanLine bounds the text of a rule of nftables, which the kernel keeps beside it
	// in at most 256 bytes.
	PlanLine = 240
	// KernelBuffer is what sockets to nftables hold: a transaction is one message, and
	// each of its parts is answered. Thousands of rules have a megabyte.
	KernelBuffer = 8 << 20
	// KernelRanges is from how many ranges on a transaction ends: 100 KiB, which fit
	// into the buffer that the kernel gives to those whom it allows no larger one.
	KernelRanges = 1536
	// KernelTold is how many kinds of errors of one transaction are told, each with how often it came.
	KernelTold = 4
	// KernelReads is how often what changes while it is read is read again.
	KernelReads = 8
	// PolicyLines bounds the rules of nftables that a policy between peers becomes: a new
	// connection meets them one after the other, some hundred nanoseconds each.
	PolicyLines = 4096
)
