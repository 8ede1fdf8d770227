// SPDX-License-Identifier: Apache-2.0

package announce

import "time"

// The bounds of this package alone.
const (
	// mostWatchers bounds the watchers of the admin socket: a few people and programs of
	// this machine. Others can still ask for the status.
	mostWatchers = 32
	// backlogBytes bounds what waits for one watcher: a thousand members that change. A
	// watcher that is further behind starts again from the list.
	backlogBytes = 1 << 20
	// lineBytes bounds one event as a client reads it: ten times a member with everything
	// that every source may state about it.
	lineBytes = 4 << 20
	// stopTimeout is how long watchers have to read the end when the process stops.
	stopTimeout = time.Second
)
