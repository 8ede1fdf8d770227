// SPDX-License-Identifier: Apache-2.0

package netcheck

// The bounds of this package alone.
const (
	// netcheckRelays bounds the relays that are measured at a time.
	netcheckRelays = 16
)
