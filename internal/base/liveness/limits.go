// SPDX-License-Identifier: Apache-2.0

package liveness

import (
	"time"
)

// The bounds of this package alone.
const (
	// pingTrip is the interval of pings while bytes come, for the round trip.
	pingTrip = 30 * time.Second
)
