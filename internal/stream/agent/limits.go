// SPDX-License-Identifier: Apache-2.0

package agent

import "time"

// Bounds and timings of this package.
const (
	// loadEvery is the shortest interval at which an agent reports its load on a session.
	loadEvery = 250 * time.Millisecond
	// portConnections bounds the connections to ports of the hub, each with two descriptors.
	portConnections = 1000
)
