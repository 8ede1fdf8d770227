// SPDX-License-Identifier: Apache-2.0

package peering

// Bounds for the tests of the package.
const (
	PeeringAsk    = peeringAsk
	PeeringLook   = peeringLook
	PeeringProbes = peeringProbes
	PeeringShake  = peeringShake
)
