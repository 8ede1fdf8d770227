// SPDX-License-Identifier: Apache-2.0

package backend

// Bounds of this package.
const (
	// most is how many proxies a hub may have: each has series of its own among the metrics.
	most = 8
	// told is how many uses of a backend a refusal lists.
	told = 5
)
