// SPDX-License-Identifier: Apache-2.0

package edge

import "time"

// The bounds and timings of this package.
const (
	// headTime is how long a client may take for PROXY header, ClientHello or CONNECT together.
	headTime = 10 * time.Second
	// mostPending bounds the connections of a port that have not said what they want, or are being refused. The oldest
	// silent one gives its place to a new one.
	mostPending = 4096
	// headFirst is the size of the first read: most ClientHellos fit.
	headFirst = 2 << 10
	// namesAnswer bounds a request for the names of a hub's clusters, which the hub answers after 30 s at the latest.
	namesAnswer = 45 * time.Second
	// feedFirst is the wait after a source of tenants gave no answer; it doubles up to feedMost.
	feedFirst, feedMost = time.Second, 30 * time.Second
	// feedsHeard is how long an edge that takes over ports waits for its sources of tenants first.
	feedsHeard = 30 * time.Second
	// discard is what is read and thrown away behind a refusal.
	discard = 64 << 10
	// answerTime bounds the writing of a refusal.
	answerTime = 2 * time.Second
	// perSource bounds the connections of one source: a NAT with a thousand kubelets behind it.
	perSource = 1024
	// perCluster bounds the tunnels of one cluster.
	perCluster = 4096
	// ejectFirst is how long an upstream that failed is tried last; it doubles up to ejectMost.
	ejectFirst = time.Second
	ejectMost  = 30 * time.Second
	// mostEjected bounds the upstreams that are remembered as failing.
	mostEjected = 4096
	// handoverTime bounds a step of a handover: the new edge reads its policies and tenants meanwhile.
	handoverTime = 2 * time.Minute
	// coverageEvery is how often the unguarded ways are counted.
	coverageEvery = 30 * time.Second
	// waysListed bounds the ways that an answer about coverage lists.
	waysListed = 10_000
	// clustersListed bounds the clusters that a status lists.
	clustersListed = 20
	// socketConns bounds the connections of the admin socket.
	socketConns = 32
)
