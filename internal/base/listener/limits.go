// SPDX-License-Identifier: Apache-2.0

package listener

// The bounds of this package alone.
const (
	// spareDescriptors are reserved file descriptors that agents and callers of a hub, and
	// targets of an agent, cannot take: for connections of the admin or health port, and
	// half as many for the admin socket, the agent's next session and files.
	spareDescriptors = 96
	// adminConnections bounds the connections of the admin port and of an agent's
	// health port, which carry probes and metrics: dozens of scrapers.
	adminConnections = 64
)
