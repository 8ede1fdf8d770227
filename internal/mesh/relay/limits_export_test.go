// SPDX-License-Identifier: Apache-2.0

package relay

// Bounds for the tests of the package.
const (
	RelayLeave  = relayLeave
	RelayLook   = relayLook
	RelayStable = relayStable
)
