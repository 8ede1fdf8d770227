// SPDX-License-Identifier: Apache-2.0

package carrier

import "time"

// Bounds and timings of this package.
const (
	// notSent bounds the bytes that the kernel holds unsent for a session, on top of those in
	// flight (TCP_NOTSENT_LOWAT): two writes of the mux.
	notSent = 128 << 10
	// leastRTO is the shortest time after which the kernel sends again what nobody acknowledged, and no later packet
	// shows to be lost: a WINDOW frame alone, or what was sent again and lost again. The kernel's own 200 ms (RFC 6298
	// says 1 s) are for peers that acknowledge late.
	leastRTO = 50 * time.Millisecond
	// mostDelayedACK is how late we acknowledge (RFC 1122, 4.2.3.2), so that the peer's leastRTO is not too short.
	mostDelayedACK = 20 * time.Millisecond
)
