// SPDX-License-Identifier: Apache-2.0

package relay

import "time"

// Bounds and timings of this package.
const (
	// relayCost is what a node's connection takes of the hub's memory: TLS, two
	// goroutines and the buffer that it reads into.
	relayCost = 80 << 10
	// relayLease is what a connection takes of its cluster's rate at once, so that it
	// does not ask for each packet.
	relayLease = 32 << 10
	// relayAbsent bounds the answers of absence to one node in a second.
	relayAbsent = 50
	// relayKnown bounds the destinations that a connection remembers.
	relayKnown = 128
	// relayListed bounds the nodes that the status of a cluster lists.
	relayListed = 1_000
	// relayEnd is how long a connection that is refused or revoked may take to read why.
	relayEnd = time.Second
)
