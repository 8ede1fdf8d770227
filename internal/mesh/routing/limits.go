// SPDX-License-Identifier: Apache-2.0

package routing

import "time"

// Bounds and timings of this package.
const (
	// meshApplied bounds the names under which a node may still have something in the kernel: each
	// start with other ones after a kill adds to them, and one that comes up leaves its own alone.
	meshApplied = 8
	// meshProbe is how long a node looks for the address by which it reaches a service.
	meshProbe = time.Second
	// routingRest is the least time between two changes of the kernel: what comes
	// together is one change. It is short beside the time in which a dead path is noticed.
	routingRest = 100 * time.Millisecond
	// routingCounts is how often counters of dropped packets are read: a chain that is
	// written anew loses what came since.
	routingCounts = 15 * time.Second
	// routingLocal is how often resolvers are read, of whose changes nobody tells.
	routingLocal = time.Minute
	// routingRemovals is how often the end tries to remove everything, while others change the same.
	routingRemovals = 3
	// resolverFile bounds what is read of a file of resolvers.
	resolverFile = 64 << 10
	// routingBackoff is the longest wait after a failure, routingLink that while only the link
	// is missing: its tunnel may come up at any moment.
	routingBackoff, routingLink = 10 * time.Second, time.Second
	// routingLook is how often the kernel is compared even without an event, routingBlind the
	// same while it cannot be watched. routingSettings is how often the few sysctls of the link
	// are read, for which there are no events.
	routingLook, routingBlind, routingSettings = time.Minute, 2 * time.Second, time.Second
)
