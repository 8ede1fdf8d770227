// SPDX-License-Identifier: Apache-2.0

package carrier

// Bounds for the tests of the package.
const (
	NotSent  = notSent
	LeastRTO = leastRTO
)
