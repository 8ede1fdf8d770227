// SPDX-License-Identifier: Apache-2.0

package state

import "time"

// Bounds and timings of this package.
const (
	// nodeKept is how long the name of a node is remembered after its certificate's end:
	// longer than any certificate of it may still be renewed.
	nodeKept = 400 * 24 * time.Hour
	// tokenKept is how long a dead token is kept, so that its refusal can say
	// whether it was used, has expired or never existed.
	tokenKept = 7 * 24 * time.Hour
)
