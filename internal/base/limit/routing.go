// SPDX-License-Identifier: Apache-2.0

package limit

import "time"

// How the owner of the mesh's kernel state paces itself.
const (
	// RoutingShare bounds the work on large meshes and against somebody who takes away what we
	// put back: after a change it rests so many times as long as that took, RoutingRestMost at most.
	RoutingShare, RoutingRestMost = 4, 2 * time.Second
	// RoutingTold bounds the lines of the log for one change, and RoutingQuiet is the least time
	// between two that say that something was put back.
	RoutingTold, RoutingQuiet = 10, time.Minute
	// RoutingProblems bounds the problems that a status lists; all are counted.
	RoutingProblems = 1000
)
