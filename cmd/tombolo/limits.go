// SPDX-License-Identifier: Apache-2.0

package main

import "time"

// Bounds and timings of this package.
const (
	// auditTail bounds the records that are kept to print the newest: some 1 GB.
	auditTail = 1_000_000
	// adminWait bounds how long the answer of a discovery socket is awaited: a service
	// with all the members that it may have answers within a second.
	adminWait = 10 * time.Second
	// completionWait is how long a shell waits for the names of peers: nobody who pressed Tab
	// waits longer.
	completionWait = time.Second
)
