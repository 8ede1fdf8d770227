// SPDX-License-Identifier: Apache-2.0

package extauthz

import "time"

// The bounds of this package.
const (
	messageBytes = 64 << 10 // of a request: Envoy bounds the head of an HTTP request at 60 KiB
	headerBytes  = 8 << 10  // of a call
	callsPerConn = 1024     // at a time
	callsAtOnce  = 4096     // of all connections
	connections  = 256      // Envoy has one for each worker thread
	reasonBytes  = 400
	connectTime  = 10 * time.Second
	drainTime    = time.Second // for the answers of begun calls

	// linger is how long an entry that is in no ConfigMap stays in force: longer than a controller takes to move it.
	linger = 5 * time.Second
)
