// SPDX-License-Identifier: Apache-2.0

package otlp

import (
	"time"
)

// The bounds of this package alone.
const (
	// spanQueue bounds the spans that wait to be sent: a second of a busy hub, which
	// makes six for each dial, in some 5 MiB.
	spanQueue = 8_192
	// spanBatch is how many spans are sent at once.
	spanBatch = 512
	// spanAttributes bounds the attributes of a span; ours have up to ten.
	spanAttributes = 32
	// collectorAnswer bounds what is read of a collector's answer, which has a
	// number and a sentence.
	collectorAnswer = 64 << 10
	// spanDelay is how long a span waits for others to be sent with it.
	spanDelay = time.Second
	// collectorTimeoutLeast is the least such time, collectorTimeoutMost the most:
	// what waits meanwhile is kept in memory.
	collectorTimeoutLeast = 100 * time.Millisecond
	// collectorTimeoutMost bounds it from above.
	collectorTimeoutMost = time.Minute
	// collectorWait bounds what a collector may ask for with Retry-After: longer than
	// that what waits would be lost anyway, and dials be refused in strict mode.
	collectorWait = 2 * time.Minute
)
