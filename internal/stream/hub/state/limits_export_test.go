// SPDX-License-Identifier: Apache-2.0

package state

// Bounds for the tests of the package.
const (
	TokenKept = tokenKept
)
