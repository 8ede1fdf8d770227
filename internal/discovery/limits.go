// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// Bounds and timings of this package.
const (
	// discoveryClusters bounds the clusters of a service.
	discoveryClusters = 100_000
	// discoveryBytes bounds the memory of all members: 100,000 of 4 KiB each, which
	// is the largest data of the older protocol and a dozen endpoints.
	discoveryBytes = 400 << 20
	// discoveryShare is the fraction of clusters and bytes that one address may use:
	// 12,500 clusters and 50 MiB, which is 12,000 members of 4 KiB behind one NAT. It takes
	// four networks to crowd out others, and their requests are refused first.
	discoveryShare = 8
	// discoveryShareBytes is the smallest share of bytes: a cluster of limit.DiscoveryMembers
	// with the largest data and limit.DiscoveryEndpoints. discoveryShareClusters is the
	// smallest share of clusters: those of one site.
	discoveryShareBytes, discoveryShareClusters = 10 << 20, 16
	// discoverySite6 and discoveryNet6 are the prefix lengths usually assigned to an IPv6
	// site; discoveryNet4 is the smallest IPv4 network that is routed on its own and can be
	// rented as a whole. A site has the share of one address. The other two have
	// discoveryNetShares shares, but at most 1/discoveryNetMost of the total.
	discoverySite6, discoveryNet6, discoveryNet4 = 56, 48, 24
	discoveryNetShares, discoveryNetMost         = 2, 4
	// discoveryReserve is the fraction of bytes withheld from new members, so that
	// existing ones can grow: a tenth.
	discoveryReserve = 10
	// discoveryLog is how many changes of a cluster are kept for slow
	// watchers: every member of a large cluster once, a burst of a small one many times.
	discoveryLog = 4096
	// discoveryLogTimes bounds the log of a smaller cluster to a multiple of its members
	// (beyond that, a new snapshot is cheaper), discoveryLogFew that of a tiny one.
	discoveryLogTimes, discoveryLogFew = 4, 64
	// discoverySnapshotShare is the fraction of a cluster that may have changed before a
	// rendered snapshot is no longer reused for another watcher: an eighth.
	discoverySnapshotShare = 8
	// discoveryRecord bounds a member in a snapshot file: its data and thousands of
	// endpoints, if that bound is raised.
	discoveryRecord = 1 << 20
	// discoveryFile bounds a snapshot file: five times discoveryBytes.
	discoveryFile = 2<<30 - 1
	// discoveryBytesMost is the largest value that discoveryBytes can be configured to: half of
	// a snapshot file, which also holds leases.
	discoveryBytesMost = 1 << 30
	// discoveryDelta is the approximate size of the changes in one message: as much as a
	// watcher that does not read may hold in memory.
	discoveryDelta = 16 << 10
	// discoveryPiece bounds a message of a snapshot.
	discoveryPiece = 256 << 10
	// discoveryRate is the sustained number of requests per second of one address.
	// discoveryBurst is how many may arrive at once: four from each of 500 nodes that start
	// behind one NAT (Hello, Watch, two updates). A refused Talos node waits for half a lease.
	discoveryRate, discoveryBurst = 15, 2000
	// discoveryListCost is how many requests a List counts as, since its answer is a whole
	// cluster: at most 60 Lists at once.
	discoveryListCost = discoveryBurst / 60
	// discoveryWaiting bounds the calls of one address that wait for their turn or for the
	// store: a cluster behind one NAT. discoveryAllWaiting bounds those of all addresses: with
	// the largest requests (discoveryMessage and a goroutine each) below discoveryBytes.
	discoveryWaiting, discoveryAllWaiting = limit.DiscoveryMembers, 4096
	// discoveryBegun bounds the calls whose request has not arrived completely: with a
	// discoveryWindow each, as much as discoveryUnread.
	discoveryBegun = 4096
	// discoveryCallers bounds the addresses whose rate is remembered, apart from those that hold
	// connections or watches, which have their own bounds.
	discoveryCallers = 65_536
	// discoveryMessage bounds a message to a service: the largest entry, or the most
	// endpoints that a configuration may allow.
	discoveryMessage = 64 << 10
	// discoveryWhole bounds the first answer of the older protocol's Watch, which is
	// the whole cluster: clients accept no message above 4 MiB. The rest follows.
	discoveryWhole = 3 << 20
	// discoveryUnread bounds the bytes of answers that callers have not read yet, apart from
	// those of watches; one address may use 1/discoveryShare of it: two of the largest
	// lists. discoveryAnswer is the fixed cost of an answer: gRPC's stream and a small message.
	discoveryUnread, discoveryAnswer = 256 << 20, 4 << 10
	// discoveryPart is the least that a caller must read of a message within discoveryPatience.
	discoveryPart = limit.AnswerPart
	// discoveryInFlight bounds the answers to a member's entries that wait to be sent;
	// beyond it, none of its frames are read.
	discoveryInFlight = 8
	// discoveryStreams bounds the calls of one connection: a proxy multiplexes
	// those of many nodes.
	discoveryStreams = 1000
	// discoveryConnections bounds the connections of a service, discoveryFrom those of
	// one address (a NAT with a cluster of nodes behind it, four times).
	discoveryConnections, discoveryFrom = 50_000, 4096
	// discoveryWatches bounds the watches of one address, for the same reason.
	discoveryWatches = 4096
	// discoveryAllWatches bounds the watches of a service, each of which costs 15 KB: two
	// per connection, as during the rotation of a secret, also where more connections are
	// configured.
	discoveryAllWatches = 2 * discoveryConnections
	// discoveryProxies bounds the networks of trusted proxies, discoveryHops the
	// addresses of a forwarded-for header that are examined.
	discoveryProxies, discoveryHops = 256, 32
	// discoveryHeader bounds the headers of a call.
	discoveryHeader = 8 << 10
	// discoveryBuffer is the read buffer of a connection: most are idle and keep it for
	// as long as they live.
	discoveryBuffer = 4 << 10
	// discoveryWindow is the flow-control window of a call and of a connection: HTTP/2's
	// initial one is larger than any message.
	discoveryWindow = 64 << 10
	// discoveryTurn is how long a request waits for its turn or for the store, if its caller
	// does: Talos nodes allow 30 s for all their updates.
	discoveryTurn = 30 * time.Second
	// discoverySnapshot is how often the state is written, if it has changed.
	discoverySnapshot = time.Minute
	// discoveryBegin bounds the time from a connection to its first call, from an Attend call
	// to the member's proof, and the arrival of a call's request.
	discoveryBegin = 10 * time.Second
	// discoveryPatience is how long a caller may leave an answer, or discoveryPart bytes of
	// it, unread before its connection is closed.
	discoveryPatience = limit.AnswerWait
	// discoveryPing is the silence after which a caller is pinged, and discoveryPong how
	// long its answer may take.
	discoveryPing, discoveryPong = 30 * time.Second, 15 * time.Second
	// discoveryPinged is the shortest interval at which a caller may ping: callers do so every
	// 10 s, and the network may deliver two of them closer together.
	discoveryPinged = 5 * time.Second
	// discoveryUnused is how long a connection without a call is kept.
	discoveryUnused = 5 * time.Minute
	// discoveryCertificate is the life of a certificate that a service makes for
	// itself; it is replaced at half of its life.
	discoveryCertificate = 30 * 24 * time.Hour
	// discoveryStamp is the shortest interval at which the files of a certificate are checked.
	discoveryStamp = time.Second
)
