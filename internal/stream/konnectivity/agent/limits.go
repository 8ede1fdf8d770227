// SPDX-License-Identifier: Apache-2.0

package agent

import "time"

// defaultHost is the reference's.
const defaultHost = "127.0.0.1"

const (
	// keepaliveDefault finds a server that is gone within a minute; the reference's takes pings every 30 s.
	keepaliveDefault = 35 * time.Second
	// keepaliveTimeout is how long a ping waits for its answer.
	keepaliveTimeout = 10 * time.Second
	// syncLeast stands for --sync-interval=0.
	syncLeast = time.Second
	// countEvery is how often leases and endpoints of servers are listed.
	countEvery = 10 * time.Second
	// drainLook is how often an agent that drains looks whether it is done.
	drainLook = 100 * time.Millisecond
	// drainQuiet is how long an agent that drains is not used before it ends: dials arrive that servers sent before they
	// knew of the drain, or while they have no other agent, such as its successor that does not have them yet.
	drainQuiet = time.Second
)
