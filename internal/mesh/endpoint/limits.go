// SPDX-License-Identifier: Apache-2.0

package endpoint

import "time"

// Bounds and timings of this package.
const (
	// endpointLook is how often a node looks whether its servers and ranges are others, if nobody
	// says so before.
	endpointLook = 5 * time.Second
	// endpointSuspect is how often at most the servers are asked because paths died: the time
	// in which one is noticed.
	endpointSuspect = 5 * time.Second
	// endpointBackoff is the longest wait before a name is resolved again that could not be, or
	// the kernel asked again that gave an error.
	endpointBackoff = time.Minute
	// endpointSettle is how long changes of a node's endpoints are collected, and endpointApart the
	// least time between two announced lists: a flapping NAT must not burden discovery.
	endpointSettle, endpointApart = 500 * time.Millisecond, 5 * time.Second
	// endpointResolve is how often the names of STUN servers are resolved, endpointName how
	// long one may take, and endpointAddresses bounds the addresses used of an answer.
	endpointResolve, endpointName, endpointAddresses = 5 * time.Minute, 5 * time.Second, 8
)
