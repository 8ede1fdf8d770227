// SPDX-License-Identifier: Apache-2.0

package relay

import "time"

// Bounds and timings of this package.
const (
	// relayPing is how often a node pings its hub: routers forget a silent TCP
	// connection, too.
	relayPing = 10 * time.Second
)
