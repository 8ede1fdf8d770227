// SPDX-License-Identifier: Apache-2.0

package nat

// The bounds of this package alone.
const (
	// stunUnknown bounds the attributes that an answer names as unknown.
	stunUnknown = 4
)
