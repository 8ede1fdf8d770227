// SPDX-License-Identifier: Apache-2.0

package psk

import (
	"time"
)

// The bounds of this package alone.
const (
	// pskTurn is how long one of several preshared keys is tried: WireGuard repeats
	// a handshake after 5 s.
	pskTurn = 10 * time.Second
)
