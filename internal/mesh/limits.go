// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// Bounds and timings of this package.
const (
	// meshSettle is how long a node that has no overlay address yet waits to learn
	// those of others.
	meshSettle = 3 * time.Second
	// meshQuiet is how often updates of members that change nothing but leases are planned: with
	// 1,000 members a plan takes a tenth of a second, and two leases are renewed each second.
	meshQuiet = 10 * time.Second
	// meshGather is how long changes of members, paths and networks are collected into one plan.
	meshGather = 100 * time.Millisecond
	// linkFell is for how long a node counts as one that has just been lost: the others of its cluster, which are asked
	// when it is in doubt, are known to be lost within it.
	linkFell = 2 * time.Second
	// linkSaid is how long a gateway says that it reaches no other node of its cluster, after it does again: each node
	// that listens has been asked by then.
	linkSaid = 3 * time.Second
	// linkSteady is how long packets must pass through a node of a linked cluster again until it is preferred as before:
	// what comes back and goes again does not move connections each time.
	linkSteady = 15 * time.Second
	// podRangeLease is how long a node keeps the ranges of its pods while the API server does not
	// answer, as long as its Member object: after that Kubernetes may have assigned them elsewhere.
	podRangeLease = limit.KubeLease
	// meshLearned bounds the members whose ranges are stored on disk, meshLearnedRanges the ranges
	// of all of them: a member has at most limit.DiscoveryFacts, most have one or two.
	meshLearned, meshLearnedRanges = 10_000, 40_000
	// meshLearnedPause is the pause after a write of that file, per member in it: with 1,000
	// members it is written every 10 s at most, with 10 almost at once.
	meshLearnedPause = 10 * time.Millisecond
	// meshLearnedFile bounds that file.
	meshLearnedFile = 8 << 20
)
