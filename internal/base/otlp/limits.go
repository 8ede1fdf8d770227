// SPDX-License-Identifier: Apache-2.0

package otlp

import (
	"time"
)

// The bounds of this package alone.
const (
	// spanQueue bounds the queued spans: one second of a busy hub, which makes six for
	// each dial, in some 5 MiB.
	spanQueue = 8_192
	// spanBatch is how many spans are sent at once.
	spanBatch = 512
	// spanAttributes bounds the attributes of a span; ours have up to ten.
	spanAttributes = 32
	// collectorAnswer bounds what is read of a collector's answer, in bytes: it has a
	// number and a sentence.
	collectorAnswer = 64 << 10
	// spanDelay is how long a span waits for others in its batch.
	spanDelay = time.Second
	// collectorTimeoutLeast is the least timeout of a request.
	collectorTimeoutLeast = 100 * time.Millisecond
	// collectorTimeoutMost is the greatest one: what is queued meanwhile is kept in memory.
	collectorTimeoutMost = time.Minute
	// collectorWait bounds the pause of a Retry-After: in a longer one the queue would
	// overflow, and dials be refused in strict mode.
	collectorWait = 2 * time.Minute
)
