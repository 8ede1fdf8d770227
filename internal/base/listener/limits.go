// SPDX-License-Identifier: Apache-2.0

package listener

import "github.com/tombolo-io/tombolo/internal/base/socket"

// adminConnections bounds the connections of the admin port and of an agent's
// health port, which carry probes and metrics: dozens of scrapers.
const adminConnections = 64

// socketConnections bounds those of an admin socket.
const socketConnections = 32

// Spare is how many connections of the admin or health port fit into the reserve.
func Spare(most int) int { return min(adminConnections, max(1, socket.Reserve(most)*2/3)) }
