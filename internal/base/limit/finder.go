// SPDX-License-Identifier: Apache-2.0

package limit

import "time"

// What a node asks of discovery services: sizes and numbers.
const (
	// FinderServices bounds the services of a configuration, FinderSecrets the
	// secrets: each pair is a session.
	FinderServices, FinderSecrets = 16, 4
	// FinderMembers bounds what is kept of one tier: twice the largest cluster we
	// measure. Only holders of the secret can fill it.
	FinderMembers = 20_000
	// FinderGatherFew are so few words of sources that the end of one lease is not gathered
	// with that of others.
	FinderGatherFew = 256
	// FinderMessage bounds one message of a service: a cluster of the older
	// protocol comes in one.
	FinderMessage = 16 << 20
	// FinderRedirects bounds how often a service of the older protocol may send us on.
	FinderRedirects = 3
	// FinderReason bounds a text of a service that is shown, in bytes.
	FinderReason = 512
	// FinderProxyHead bounds a proxy's answer to CONNECT.
	FinderProxyHead = 16 << 10
	// FinderCacheFile bounds the cache on disk: FinderMembers of what a member usually has.
	FinderCacheFile = 64 << 20
	// FinderKeyFile bounds the files of keys, secrets, credentials and versions.
	FinderKeyFile = 4 << 10
	// PrivateFile bounds a file with a key or an identity: a few certificates beside it.
	PrivateFile = 1 << 20
	// FinderListFile bounds the file of members.
	FinderListFile = 16 << 20
	// FinderWatchers bounds those who follow a member's admin socket: a few people
	// and programs of this machine. Others can still ask for the status.
	FinderWatchers = 32
	// FinderBacklog bounds in bytes what waits for one of them: a thousand members
	// that change. Who is further behind begins with the list again.
	FinderBacklog = 1 << 20
	// FinderRivals is how many such entries in a lease are a machine that was copied: each
	// of a few services may know another version of a state directory that was put back.
	FinderRivals = 4
	// FinderLine bounds an event that is read of a member's admin socket: a member
	// with all that every source may say of it has a tenth.
	FinderLine = 4 << 20
)

// What a node asks of discovery services: times.
const (
	// FinderHello is for the first answers of a service.
	FinderHello = 10 * time.Second
	// FinderPush is for all that is announced to a service of the older protocol at once.
	FinderPush = 30 * time.Second
	// FinderSnapshot is how long the next piece of a snapshot may take.
	FinderSnapshot = 30 * time.Second
	// FinderPing is how often a silent connection to a service is tried; the least
	// that services of the older protocol take is 10 s.
	FinderPing, FinderPingLeast = 30 * time.Second, 10 * time.Second
	// FinderGrace is how long a removal that nobody signed is doubted: members that
	// live announce themselves again within it.
	FinderGrace = time.Minute
	// FinderBackoff is the longest wait between two tries to reach a service: leases
	// are far longer, and thousands of members wait for one that is away.
	FinderBackoff = time.Minute
	// FinderLived is how long a session lasts that counts as a success: after a shorter
	// one the wait until the next grows.
	FinderLived = 10 * time.Second
	// FinderLease is the shortest lease that a node asks for: a third of it is how often
	// it announces itself to all services.
	FinderLease = time.Minute
	// FinderGather and FinderGatherEach, for each word of a source about a member, are how
	// long news are gathered before they are merged: of 10,000 members 1.1 s, so that at
	// most 10,000 words a second are merged however many there are.
	FinderGather, FinderGatherEach = 100 * time.Millisecond, 100 * time.Microsecond
	// FinderRenewals is how long renewals of leases, which tell nothing else, are gathered: of
	// 1,000 members some come at any moment, and each merge looks at all of them.
	FinderRenewals = 10 * time.Second
	// FinderRetry is when a refused announcement is tried again.
	FinderRetry = time.Minute
	// FinderSave is the least time between two writes of the cache.
	FinderSave = 10 * time.Second
	// FinderSaveRenewals is the same while leases alone are others: of 1,000 members the cache
	// is a megabyte, and some renew at any moment.
	FinderSaveRenewals = time.Minute
	// FinderRemember is how long the version of a member that is gone is known, so
	// that its old entries do not come back.
	FinderRemember = 24 * time.Hour
	// FinderRival is how long a member waits before it answers the second entry with its
	// key that it did not make, FinderRivalMost how long at most: below the shortest
	// third of the longest lease, and two machines write no more than a renewing one.
	FinderRival, FinderRivalMost = time.Second, 5 * time.Minute
	// FinderReplay is how old an entry may be, by its version and our clock, to count when
	// its member is heard of first: beyond a lease, so that clocks may differ by a day.
	FinderReplay = 24*time.Hour + DiscoveryTTL
	// FinderHold is how long members are known beyond their leases while no service
	// tells of them: an outage of a night and a day parts nobody who lives.
	FinderHold = 24 * time.Hour
	// FinderReturn is how long members may take to come back to a service that is there
	// again: they ask at least each FinderBackoff. FinderReturnSlow is for a service that
	// has lost its state, and for clients that are not ours: a third of the longest
	// lease, within which each of ours that lives has said so.
	FinderReturn, FinderReturnSlow = 2 * time.Minute, DiscoveryTTL / 3
	// FinderAhead is how far a service may say that our own version is ahead of our
	// clock: a version beyond would take away those that follow.
	FinderAhead = 10 * 365 * 24 * time.Hour
	// FinderLeave is for a farewell to all services.
	FinderLeave = 5 * time.Second

	// FinderSettled is how often a command looks whether all sources have told all.
	FinderSettled = 20 * time.Millisecond
	// FinderWait bounds how long a command may have the admin socket wait for that.
	FinderWait = 5 * time.Minute
	// FinderStop is how long those who follow the admin socket have to be told its end.
	FinderStop = time.Second
	// FinderLook is how often files of members are looked at.
	FinderLook = 5 * time.Second
)
