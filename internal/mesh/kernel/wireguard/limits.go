// SPDX-License-Identifier: Apache-2.0

package wireguard

import (
	"time"
)

// The bounds of this package alone.
const (
	// wireGuardStale is how old an answer may be when a peer gets another endpoint: a handshake that
	// came since would say that the old one is good.
	wireGuardStale = 200 * time.Millisecond
	// wireGuardFresh is how old a session is before WireGuard makes another one (whitepaper,
	// section 6.1).
	wireGuardFresh = 120 * time.Second
	// wireGuardPeers and wireGuardRanges bound a message to it: wgctrl sends what is more in
	// several, and then says of a peer that is named twice what was first alone.
	wireGuardPeers, wireGuardRanges = 32, 256
	// wireGuardPorts is how often a port is looked for that is free in both IP versions.
	wireGuardPorts = 8
)
