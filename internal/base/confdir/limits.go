// SPDX-License-Identifier: Apache-2.0

package confdir

import "time"

// Bounds and timings of this package.
const (
	// settleMost bounds the wait for a file that is written without an end.
	settleMost = 2 * time.Second
	// refusalsListed bounds the refused files that a status lists.
	refusalsListed = 100
	// refusalText bounds the reason of each in bytes.
	refusalText = 400
)
