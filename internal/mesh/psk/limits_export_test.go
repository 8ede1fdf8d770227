// SPDX-License-Identifier: Apache-2.0

package psk

// Bounds for the tests of the package.
const (
	PSKTurn = pskTurn
)
