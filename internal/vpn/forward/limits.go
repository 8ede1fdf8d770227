// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// Bounds and timings of this package.
const (
	// clusters bounds those of a file, as many as a mesh has members.
	clusters = limit.RosterList
	// connections bounds those of all clusters, perCluster those of one: a cluster has two clients, each has one
	// connection, and one that it has lost may still be open.
	connections, perCluster = 2 * clusters, 32
	// idle is how long a connection or flow may be silent: OpenVPN sends a ping each 10 s, and gives up after 30 s.
	idle = 2 * time.Minute
	// dialWait bounds the resolving and dialling of a target: the client tries another endpoint after 4 s.
	dialWait = 4 * time.Second
	// bindEvery is how often it is tried to listen while the address is not there.
	bindEvery = 500 * time.Millisecond
	// datagram bounds one of UDP.
	datagram = 1<<16 - 1
)
