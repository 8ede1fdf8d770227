// SPDX-License-Identifier: Apache-2.0

package carrier

// Bounds and timings of this package.
const (
	// notSent bounds the bytes that the kernel holds unsent for a session, on top of those in
	// flight (TCP_NOTSENT_LOWAT): two writes of the mux.
	notSent = 128 << 10
)
