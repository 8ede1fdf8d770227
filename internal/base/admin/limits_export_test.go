// SPDX-License-Identifier: Apache-2.0

package admin

// Bounds for the tests of the package.
const (
	AdminAnswer = adminAnswer
)
