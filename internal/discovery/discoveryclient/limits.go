// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import (
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// Sizes and numbers of this package alone.
const (
	// mostMembers bounds what is kept of one tier: twice the largest cluster that is
	// measured. Only holders of the secret can fill it.
	mostMembers = 20_000
	// gatherFew is the number of entries up to which the end of a single lease is merged at
	// once. With more, leases that end close together are merged together.
	gatherFew = 256
	// mostRedirects bounds how often a service of the older protocol may redirect us.
	mostRedirects = 3
	// reasonBytes bounds a text of a service that is shown.
	reasonBytes = 512
	// mostCacheBytes bounds the cache on disk: mostMembers entries of the usual size.
	mostCacheBytes = 64 << 20
	// mostListBytes bounds the file of members, listProblems what is shown of what it names.
	mostListBytes, listProblems = 16 << 20, 8
	// namesAtOnce bounds the names of endpoints that are resolved side by side, nameAddresses the addresses of each.
	namesAtOnce, nameAddresses = 16, 8
	// copiedRivals is the number of foreign entries with our key, within a lease, that means the
	// machine was copied: after a restored state directory, each of a few services may know another version.
	copiedRivals = 4
)

// Times of this package alone.
const (
	// helloTimeout bounds the wait for the first answers of a service.
	helloTimeout = 10 * time.Second
	// pushTimeout bounds one announcement to a service of the older protocol.
	pushTimeout = 30 * time.Second
	// snapshotTimeout bounds the wait for the next piece of a snapshot.
	snapshotTimeout = 30 * time.Second
	// pingInterval is how often a silent connection to a service is checked. Services of the
	// older protocol accept no shorter interval than shortestPing.
	pingInterval, shortestPing = 30 * time.Second, 10 * time.Second
	// removalGrace is how long an unsigned removal is doubted: members that live announce
	// themselves again within it.
	removalGrace = time.Minute
	// sessionLived is how long a session must last to count as a success: after a shorter
	// one the backoff grows.
	sessionLived = 10 * time.Second
	// shortestLease is the shortest lease that a node asks for. It announces itself to all
	// services each third of its lease.
	shortestLease = time.Minute
	// gatherLeast and, for each entry, gatherEach are how long news are gathered before a merge:
	// with 10,000 members 1.1 s. So at most 10,000 entries a second are merged, however many there are.
	gatherLeast, gatherEach = 100 * time.Millisecond, 100 * time.Microsecond
	// announceRetry is when a refused announcement is tried again.
	announceRetry = time.Minute
	// saveInterval is the least time between two writes of the cache, saveRenewalsInterval the same
	// while nothing but leases changes: of 1,000 members the cache is a megabyte, and some renew at any moment.
	saveInterval, saveRenewalsInterval = 10 * time.Second, time.Minute
	// rememberGone is how long the version of a member that is gone is remembered, so that its
	// old entries do not come back.
	rememberGone = 24 * time.Hour
	// rivalWait is how long a member waits before it answers the second foreign entry with its key,
	// rivalWaitMost the longest such wait. That is below the shortest third of the longest lease, so
	// two machines with one key write no more than one that renews.
	rivalWait, rivalWaitMost = time.Second, 5 * time.Minute
	// replayAge is how old an entry may be, by its version and our clock, to count when its
	// member is not known yet: longer than a lease, so that clocks may differ by a day.
	replayAge = 24*time.Hour + limit.DiscoveryTTL
	// staleHold is how long members are kept beyond their leases while no service reports
	// members: they survive an outage of a night and a day.
	staleHold = 24 * time.Hour
	// returnGrace is how long members may take to come back to a service that is reachable again:
	// they try at least each limit.DiscoveryBackoff. returnGraceSlow is for a service that has lost
	// its state, and for clients that are not ours: a third of the longest lease, within which each
	// of our living nodes renews.
	returnGrace, returnGraceSlow = 2 * time.Minute, limit.DiscoveryTTL / 3
	// versionAhead is how far ahead of our clock a service may claim our own version to be: a
	// version beyond would use up those that follow.
	versionAhead = 10 * 365 * 24 * time.Hour
	// settledPoll is how often a waiting command checks whether all sources have settled.
	settledPoll = 20 * time.Millisecond
	// lookInterval is how often the file of members and the key file are checked for changes.
	lookInterval = 5 * time.Second
	// nameInterval is how often names of endpoints are resolved while all members answer; nameWait bounds that.
	nameInterval, nameWait = 30 * time.Second, 5 * time.Second
	// underGrace is how long a member still counts as announced under a secret under which its
	// newest entry has not come yet: it announces to one service after the other.
	underGrace = 10 * time.Second
)
