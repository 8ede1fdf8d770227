// SPDX-License-Identifier: Apache-2.0

package conns

import "time"

// Bounds and timings of this package.
const (
	// descriptorsCounted is how long a count of the open files is good for: reading
	// the list of 20,000 takes milliseconds.
	descriptorsCounted = time.Second
)
