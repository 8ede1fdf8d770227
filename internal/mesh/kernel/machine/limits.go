// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"time"
)

// The bounds of this package alone.
const (
	// localSettle is how long changes of addresses are collected: a link that comes up
	// makes a dozen of them.
	localSettle = 250 * time.Millisecond
	// localClock is how often the clocks are compared, and localGap the least sleep that
	// counts as one.
	localClock, localGap = 2 * time.Second, time.Second
)
