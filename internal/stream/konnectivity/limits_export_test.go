// SPDX-License-Identifier: Apache-2.0

package konnectivity

// Bounds for the tests of the package.
const (
	KonnectivityData    = konnectivityData
	KonnectivityRequest = konnectivityRequest
	KonnectivityHeld    = konnectivityHeld
)
