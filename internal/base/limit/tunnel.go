// SPDX-License-Identifier: Apache-2.0

package limit

import "time"

// The socket and the engine of the mesh.
const (
	// TunnelProbes and TunnelSTUN bound what waits for the owner of the mesh, in
	// packets. 1,000 peers that answer at once fit; a flood costs half a MiB.
	TunnelProbes, TunnelSTUN = 1024, 64
	// WireGuardLook is how often the kernel's WireGuard is asked about its peers: it tells of
	// nothing by itself. WireGuardRest times as long as the answer took is rested at least.
	WireGuardLook, WireGuardRest = time.Second, 20
	// WireGuardGone is how long a link may be missing before it counts as taken away: one that
	// was renamed gets its name back within RoutingRestMost, unless that fails.
	WireGuardGone = RoutingRestMost + WireGuardLook
	// WireGuardRepeats is how long the kernel repeats a handshake that has no answer: 90 s, and one
	// interval.
	WireGuardRepeats = 95 * time.Second
)
