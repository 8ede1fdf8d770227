// SPDX-License-Identifier: Apache-2.0

package seal

// Bounds for the tests of the package.
const (
	DiscoveryText = discoveryText
)
