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
	// FinderUnder is how long a member counts as one under a secret under which its newest
	// word has not come yet: it tells one service after the other.
	FinderUnder = 10 * time.Second
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
)
