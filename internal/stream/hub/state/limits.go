// SPDX-License-Identifier: Apache-2.0

package state

import "time"

// Bounds and timings of this package.
const (
	// nodeKept is how long the name of a node is remembered after its certificate's end:
	// longer than any certificate of it may still be renewed.
	nodeKept = 400 * 24 * time.Hour
)
