// SPDX-License-Identifier: Apache-2.0

package limit

import "time"

// Discovery: sizes and numbers. The first five are those of the protocol that Talos
// nodes speak, so that what one service takes another does.
const (
	// DiscoveryID bounds a cluster's or member's id in bytes.
	DiscoveryID = 256
	// DiscoveryData bounds the sealed data of a member in bytes.
	DiscoveryData = 2048
	// DiscoveryEndpoint bounds a sealed endpoint: an IPv6 one has 32 bytes.
	DiscoveryEndpoint = 32
	// DiscoveryEndpoints bounds the endpoints of a member.
	DiscoveryEndpoints = 64
	// DiscoveryMembers bounds the members of a cluster.
	DiscoveryMembers = 1024
	// DiscoverySealed bounds the sealed bytes of a native entry: addresses, ranges
	// and observations of a node with hundreds of each.
	DiscoverySealed = 16 << 10
	// DiscoveryUnknown bounds the fields of an entry or a proof that are not known,
	// in bytes: nobody signs them, so they must not carry much.
	DiscoveryUnknown = 1 << 10
	// DiscoveryFacts bounds each list of what a member says of itself but its
	// endpoints: what fits into DiscoverySealed, and can be compared pair by pair.
	DiscoveryFacts = 256
	// DiscoveryList bounds the answer of the older protocol's List, which cannot be split:
	// what our own nodes take. A request of a few bytes must not cost more.
	DiscoveryList = 16 << 20
	// DiscoveryPages bounds the connections for the landing page, for probes and for
	// the admin socket, each.
	DiscoveryPages = 128
	// DiscoveryServices bounds the services of a node's configuration, ClusterSecrets the
	// secrets: each pair is a session.
	DiscoveryServices, ClusterSecrets = 16, 4
	// RosterEndpoints bounds the endpoints of a member after all sources are merged:
	// what two services keep of one, as each is tried in turn.
	RosterEndpoints = 128
	// RosterText bounds each name that a source states of a member in bytes.
	RosterText = 253
	// RosterList bounds the members of a file, RosterNames the names of endpoints of each.
	RosterList, RosterNames = 10_000, 8
	// PodRanges bounds the ranges of pods that are taken of a Node: Kubernetes itself gives one
	// of each IP version. PodRangeText bounds one as a text, which is longer than any CIDR.
	PodRanges, PodRangeText = 8, 64
)

// Discovery: times.
const (
	// KubeLease is the lease of an object Member: renewed at a third, a node may miss two
	// renewals. Each one is told to all other nodes: shorter ones are dear in a large cluster.
	KubeLease = 15 * time.Minute
	// DiscoveryTTL is the longest lease: a member that is gone is not looked for longer.
	DiscoveryTTL = 30 * time.Minute
	// DiscoverySettle is how long a service that began without its state says nothing
	// of who is not there. Members of the older protocol wait up to 90 s between two
	// tries (a minute, and half of it at random) after an outage of some minutes, and
	// take what the first answer lacks for gone.
	DiscoverySettle = 100 * time.Second
	// DiscoverySweep is how often leases are looked at.
	DiscoverySweep = time.Second
	// DiscoveryStoreRetry is how often an etcd that is away is tried.
	DiscoveryStoreRetry = time.Second
	// DiscoveryBackoff is the longest wait of a node between two tries to reach a service: leases
	// are far longer, and thousands of members wait for a service that is away.
	DiscoveryBackoff = time.Minute
	// DiscoveryRenewals is how long a node gathers renewals of leases, which change nothing else: of
	// 1,000 members some come at any moment, and each merge looks at all of them.
	DiscoveryRenewals = 10 * time.Second
	// DiscoveryWait bounds how long a command may have the admin socket wait for all sources.
	DiscoveryWait = 5 * time.Minute
)

// Discovery: numbers of the store in etcd.
const (
	// DiscoveryStorePage is how many keys are asked for at once: 2 MiB of small entries.
	DiscoveryStorePage = 1000
)
