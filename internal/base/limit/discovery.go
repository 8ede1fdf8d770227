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
	// DiscoveryClusters bounds the clusters of a service.
	DiscoveryClusters = 100_000
	// DiscoveryBytes bounds the memory of all members: 100,000 of 4 KiB each, which
	// is the largest data of the older protocol and a dozen endpoints.
	DiscoveryBytes = 400 << 20
	// DiscoveryShare is the part of clusters and of bytes that one address may fill:
	// 12,500 clusters and 50 MiB, 12,000 members of 4 KiB behind one NAT. It takes
	// four networks to shut others out, and theirs is what is refused first.
	DiscoveryShare = 8
	// DiscoveryShareBytes is the least share of bytes: a cluster of DiscoveryMembers
	// with the largest data and DiscoveryEndpoints. DiscoveryShareClusters is that of
	// clusters: those of one site.
	DiscoveryShareBytes, DiscoveryShareClusters = 10 << 20, 16
	// DiscoverySite6 and DiscoveryNet6 are what a site of IPv6 is given, and has the /64s
	// of; DiscoveryNet4 is the smallest network of IPv4 that is announced by itself, which
	// one may rent whole. A site has the share of one address, the other two have
	// DiscoveryNetShares of them, and not more than one DiscoveryNetMost-th of the whole.
	DiscoverySite6, DiscoveryNet6, DiscoveryNet4 = 56, 48, 24
	DiscoveryNetShares, DiscoveryNetMost         = 2, 4
	// DiscoveryReserve is the part of bytes that new members are not given, so that
	// those that are there can grow: a tenth.
	DiscoveryReserve = 10
	// DiscoveryLog is how many changes of a cluster are kept for watchers that are
	// behind: all of a large cluster once, a burst of a small one many times.
	DiscoveryLog = 4096
	// DiscoveryLogTimes bounds that log in a smaller cluster to a multiple of its
	// members (beyond, to be told everything again is less), DiscoveryLogFew in a tiny one.
	DiscoveryLogTimes, DiscoveryLogFew = 4, 64
	// DiscoverySnapshotShare is the part of a cluster that may have changed since a
	// snapshot was rendered, if it is given to another watcher: an eighth.
	DiscoverySnapshotShare = 8
	// DiscoveryRecord bounds a member in a snapshot file: its data and thousands of
	// endpoints, where that bound is raised.
	DiscoveryRecord = 1 << 20
	// DiscoveryFile bounds a snapshot file: five times what DiscoveryBytes takes.
	DiscoveryFile = 2<<30 - 1
	// DiscoveryBytesMost is the most that may be configured for DiscoveryBytes: half of a
	// snapshot file, as leases stand there too.
	DiscoveryBytesMost = 1 << 30
	// DiscoveryDelta is about how much of what changed is put into one message: as much
	// as a watcher that does not read may keep in memory.
	DiscoveryDelta = 16 << 10
	// DiscoveryPiece bounds a message of a snapshot.
	DiscoveryPiece = 256 << 10
	// DiscoveryRate is requests a second of one address in the long run. DiscoveryBurst is
	// how many may come at once: four of each of 500 nodes that begin behind one NAT (Hello,
	// Watch, and two updates), where a Talos node that is refused waits for half a lease.
	DiscoveryRate, DiscoveryBurst = 15, 2000
	// DiscoveryListCost is how many requests a List counts as, whose answer is a whole
	// cluster: of them no more than 60 come at once.
	DiscoveryListCost = DiscoveryBurst / 60
	// DiscoveryWaiting bounds the calls of one address that wait for their turn or for the
	// store: a cluster behind one NAT. DiscoveryAllWaiting is that of all: with the largest
	// requests (DiscoveryMessage each, and a goroutine) below DiscoveryBytes.
	DiscoveryWaiting, DiscoveryAllWaiting = DiscoveryMembers, 4096
	// DiscoveryBegun bounds the calls whose request does not come at once: with a
	// DiscoveryWindow each as much as DiscoveryUnread.
	DiscoveryBegun = 4096
	// DiscoveryCallers bounds the addresses whose rate is remembered, beside those that hold
	// connections and watches, which have bounds of their own.
	DiscoveryCallers = 65_536
	// DiscoveryMessage bounds a message to a service: the largest entry, or the most
	// endpoints that a configuration may allow.
	DiscoveryMessage = 64 << 10
	// DiscoveryWhole bounds the first answer of the older protocol's Watch, which is
	// the whole cluster: clients take no message above 4 MiB. What is beyond follows.
	DiscoveryWhole = 3 << 20
	// DiscoveryList bounds the answer of the older protocol's List, which cannot be split:
	// what our own nodes take. A request of a few bytes must not cost more.
	DiscoveryList = 16 << 20
	// DiscoveryUnread bounds the bytes of answers that callers have not read yet, beside
	// what watches hold; one address may have the DiscoveryShare-th part: two of the
	// largest lists. DiscoveryAnswer is what one counts as beside a list's bytes: gRPC's
	// stream and a message of some bytes.
	DiscoveryUnread, DiscoveryAnswer = 256 << 20, 4 << 10
	// DiscoveryPart is the least that a caller must take of a message in DiscoveryPatience.
	DiscoveryPart = AnswerPart
	// DiscoveryInFlight bounds the answers to a member's entries that wait to be sent;
	// beyond it none of its frames is read.
	DiscoveryInFlight = 8
	// DiscoveryStreams bounds the calls of one connection: a proxy carries those of
	// many nodes on one.
	DiscoveryStreams = 1000
	// DiscoveryConnections bounds the connections of a service, DiscoveryFrom those of
	// one address (a NAT with a cluster of nodes behind it, four times).
	DiscoveryConnections, DiscoveryFrom = 50_000, 4096
	// DiscoveryWatches bounds the watches of one address, for the same reason.
	DiscoveryWatches = 4096
	// DiscoveryAllWatches bounds the watches of a service, each of which costs 15 KB: two
	// of each connection, as while a secret is rotated. Where more connections are
	// allowed it is two of each, too.
	DiscoveryAllWatches = 2 * DiscoveryConnections
	// DiscoveryPages bounds the connections for the landing page, for probes and for
	// the admin socket, each.
	DiscoveryPages = 128
	// DiscoveryProxies bounds the networks of trusted proxies, DiscoveryHops how many
	// addresses of a forwarded-for header are looked at.
	DiscoveryProxies, DiscoveryHops = 256, 32
	// DiscoveryHeader bounds the headers of a call.
	DiscoveryHeader = 8 << 10
	// DiscoveryBuffer is what is read at once of a connection: most are idle, and hold
	// it for as long as they live.
	DiscoveryBuffer = 4 << 10
	// DiscoveryWindow is what may come of a call or a connection before it is read:
	// what HTTP/2 begins with is more than any message.
	DiscoveryWindow = 64 << 10
	// DiscoveryServices bounds the services of a node's configuration, ClusterSecrets the
	// secrets: each pair is a session.
	DiscoveryServices, ClusterSecrets = 16, 4
	// RosterEndpoints bounds the endpoints of a member after all sources are merged:
	// what two services keep of one, as each is tried in turn.
	RosterEndpoints = 128
	// RosterText bounds each name that a source states of a member in bytes.
	RosterText = 253
	// RosterList bounds the members of a file.
	RosterList = 10_000
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
	// DiscoveryTurn is how long a request waits for its turn or for the store, if its caller
	// does: Talos nodes give all their updates 30 s.
	DiscoveryTurn = 30 * time.Second
	// DiscoverySweep is how often leases are looked at.
	DiscoverySweep = time.Second
	// DiscoverySnapshot is how often the state is written, if it has changed.
	DiscoverySnapshot = time.Minute
	// DiscoveryStoreRetry is how often an etcd that is away is tried.
	DiscoveryStoreRetry = time.Second
	// DiscoveryBegin bounds a connection's way to its first call, an attending
	// member's to its proof, and the arrival of a call's request.
	DiscoveryBegin = 10 * time.Second
	// DiscoveryPatience is how long a caller may leave an answer unread, or a part of
	// DiscoveryPart bytes, before its connection is ended.
	DiscoveryPatience = AnswerWait
	// DiscoveryPing is how often a silent caller is asked whether it is there, and
	// DiscoveryPong how long it may take to say so.
	DiscoveryPing, DiscoveryPong = 30 * time.Second, 15 * time.Second
	// DiscoveryPinged is how often a caller may ask: they do each 10 s, and the network
	// brings two of them closer together.
	DiscoveryPinged = 5 * time.Second
	// DiscoveryUnused is how long a connection without a call is kept.
	DiscoveryUnused = 5 * time.Minute
	// DiscoveryCertificate is the life of a certificate that a service makes for
	// itself; a new one is made in half-time.
	DiscoveryCertificate = 30 * 24 * time.Hour
	// DiscoveryBackoff is the longest wait of a node between two tries to reach a service: leases
	// are far longer, and thousands of members wait for a service that is away.
	DiscoveryBackoff = time.Minute
	// DiscoveryRenewals is how long a node gathers renewals of leases, which change nothing else: of
	// 1,000 members some come at any moment, and each merge looks at all of them.
	DiscoveryRenewals = 10 * time.Second
	// DiscoveryWait bounds how long a command may have the admin socket wait for all sources.
	DiscoveryWait = 5 * time.Minute
	// DiscoveryStamp is how often the files of a certificate are looked at, at most.
	DiscoveryStamp = time.Second
)

// Discovery: numbers of the store in etcd.
const (
	// DiscoveryStorePage is how many keys are asked for at once: 2 MiB of small entries.
	DiscoveryStorePage = 1000
)
