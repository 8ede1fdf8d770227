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
	// FinderListFile bounds the file of members.
	FinderListFile = 16 << 20
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
	// FinderGather is how long news are gathered before they are merged.
	FinderGather = 100 * time.Millisecond
	// FinderRetry is when a refused announcement is tried again.
	FinderRetry = time.Minute
	// FinderSave is the least time between two writes of the cache.
	FinderSave = 10 * time.Second
	// FinderRemember is how long the version of a member that is gone is known, so
	// that its old entries do not come back.
	FinderRemember = 24 * time.Hour
	// FinderAhead is how far a service may say that our own version is ahead of our
	// clock: a version beyond would take away those that follow.
	FinderAhead = 10 * 365 * 24 * time.Hour
	// FinderLeave is for a farewell to all services.
	FinderLeave = 5 * time.Second
	// FinderLook is how often files of members are looked at.
	FinderLook = 5 * time.Second
)
