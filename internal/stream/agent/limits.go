// SPDX-License-Identifier: Apache-2.0

package agent

import "time"

// Bounds and timings of this package.
const (
	// loadEvery is how often a session is told its agent's load at most.
	loadEvery = 250 * time.Millisecond
)
