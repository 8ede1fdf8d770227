// SPDX-License-Identifier: Apache-2.0

package admin

// Bounds and timings of this package.
const (
	// adminAnswer bounds an answer of the admin API: the status of 10,000
	// clusters with three agents each has about 20 MiB.
	adminAnswer = 64 << 20
)
