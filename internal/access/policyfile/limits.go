// SPDX-License-Identifier: Apache-2.0

package policyfile

import "time"

// Bounds and timings of this package.
const (
	// policySettle bounds the wait for a policy that is written without an end.
	policySettle = 2 * time.Second
)
