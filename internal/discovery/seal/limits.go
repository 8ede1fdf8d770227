// SPDX-License-Identifier: Apache-2.0

package seal

// The bounds of this package alone.
const (
	// discoveryText bounds a name or text of a member in bytes: a host name has 253.
	discoveryText = 256
)
