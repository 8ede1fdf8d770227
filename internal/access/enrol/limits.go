// SPDX-License-Identifier: Apache-2.0

package enrol

// Bounds and timings of this package.
const (
	// tickets bounds the hub addresses for which an agent keeps a TLS session ticket.
	tickets = 16
)
