// SPDX-License-Identifier: Apache-2.0

package attach

import "time"

// Bounds and timings of this package.
const (
	// attachFirst is how long a node without a certificate asks for one before it starts
	// without it: direct paths need none.
	attachFirst = 5 * time.Second
)
