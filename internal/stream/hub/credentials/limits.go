// SPDX-License-Identifier: Apache-2.0

package credentials

import "time"

// Bounds and timings of this package.
const (
	// renewBurst is how many certificates an agent or a node gets at once, by renewals and
	// by joins that repeat an earlier one: some restarts in a row.
	renewBurst = 10
	// renewKept bounds the identities that are remembered for that; who lacks least is
	// forgotten first. 10,000 agents may renew within one period.
	renewKept = 16_384
	// renewEvery is the time in which an agent or a node gets one more certificate.
	renewEvery = 30 * time.Second
)
