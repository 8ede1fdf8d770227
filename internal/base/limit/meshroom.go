// SPDX-License-Identifier: Apache-2.0

package limit

import "time"

// A node of the mesh.
const (
	// MeshPing is how long one echo through the tunnel is waited for: the longest way
	// around the world with a relay between, and a handshake before it.
	MeshPing = 5 * time.Second
	// Completion is how long a shell waits for the words of peers: who has pressed Tab
	// waits no longer.
	Completion = time.Second
)

const (
	// MeshVersion is that of the path protocol which this program speaks.
	MeshVersion = 1
	// MeshSettle is how long a node that has no overlay address yet waits to see who has
	// which.
	MeshSettle = 3 * time.Second
	// MeshQuiet is how often what is no news of members is planned with: with 1,000 of them
	// that takes a tenth of a second, and a lease is renewed twice in one.
	MeshQuiet = 10 * time.Second
	// MeshGather is how long news of members, paths and networks are gathered into one plan.
	MeshGather = 100 * time.Millisecond
	// PodRangeLease is how long the ranges of a node's pods are its own without another word of
	// the API server, as long as its object Member: Kubernetes may have given them to another node then.
	PodRangeLease = KubeLease
	// MeshNames is how many nodes a warning names, so that it fits a few lines.
	MeshNames = 8
	// MeshLearned bounds the members whose ranges are known on disk, MeshLearnedRanges the ranges
	// of all of them: those of a member are at most DiscoveryFacts, and most have one or two.
	MeshLearned, MeshLearnedRanges = 10_000, 40_000
	// MeshClosed is for how long ranges stay closed of whom nothing is heard: a week, so that
	// somebody looks at a machine that died on a Friday. MeshClosedMost bounds what may be set.
	MeshClosed, MeshClosedMost = 7 * 24 * time.Hour, 10 * 366 * 24 * time.Hour
	// MeshLearnedPause is for how long the file of them is left alone after a write, for each member
	// in it: 1,000 that come one by one are written every 10 s, and of 10 each one at once.
	MeshLearnedPause = 10 * time.Millisecond
	// MeshLearnedFile bounds the file of them.
	MeshLearnedFile = 8 << 20
)
