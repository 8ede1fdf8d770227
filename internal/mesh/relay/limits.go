// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// Bounds and timings of this package.
const (
	// relayPing is how often a node pings its hub: routers forget a silent TCP
	// connection, too.
	relayPing = 10 * time.Second
	// relayLeave is how long a replaced connection is still read.
	relayLeave = 5 * time.Second
	// relayStable is how long a hub stays announced after its connection broke: twice the
	// longest wait between two tries, so that the restart of a hub changes no announcement.
	// Senders there are told meanwhile that we are absent, and use our next hub.
	relayStable = 2 * limit.BackoffMost
	// relayLook is how often an address is tried again whose hub is reached at another
	// address: it may lead elsewhere by now. That costs an aborted handshake and a line in the
	// hub's log.
	relayLook = time.Hour
)
