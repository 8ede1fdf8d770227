// SPDX-License-Identifier: Apache-2.0

package limit

import "time"

// Paths between nodes of the mesh.
const (
	// PathCandidates bounds the candidates of a peer: a member states 64 at most,
	// and anyone who learns its key must not make it ping the world.
	PathCandidates = 64
	// PathHeard bounds those of them that were only heard: whoever replays a ping
	// from many addresses displaces no candidate that a member stated.
	PathHeard = 8
	// PathActive is how long after its last packet a path has traffic.
	PathActive = 30 * time.Second
	// PathCalledAt bounds the endpoints of a call: with them a packet of 640 bytes, which
	// passes everywhere.
	PathCalledAt = 32
	// PathIdle is how long a lazy peer is kept after its last packet.
	PathIdle = 5 * time.Minute
	// PathHandshake is how old the handshake of such a peer may be while there is
	// traffic: WireGuard makes a new one after 120 s, and gives that 15 s here.
	PathHandshake = 135 * time.Second
)
