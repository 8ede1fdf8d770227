// SPDX-License-Identifier: Apache-2.0

package otlp

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// laterError is a failure after which the collector wants to be left alone for a while.
type laterError struct {
	error
	wait time.Duration
}

func (e laterError) Error() string {
	return fmt.Sprintf("%v, and wants to be asked again in %v", e.error, e.wait)
}
func (e laterError) Unwrap() error { return e.error }

// Wait is how long the collector wants to be left alone.
func (e laterError) Wait() time.Duration { return e.wait }

// pause is how long to wait after a failure.
func pause(err error) time.Duration {
	var later laterError
	if errors.As(err, &later) {
		return max(limit.AuditRetry, later.wait)
	}
	return limit.AuditRetry
}

// retryAfter reads how long a collector that is overloaded wants to be left alone
// (OTLP 1.x, "OTLP/HTTP Throttling"; RFC 9110 section 10.2.3): whole seconds, or a date,
// which is taken by the collector's own clock if it shows that. 0: it does not say,
// or not so that it can be read. What it says is bounded.
func retryAfter(status int, h http.Header, now time.Time) time.Duration {
	if status != http.StatusTooManyRequests && status != http.StatusServiceUnavailable {
		return 0
	}
	text := h.Get("Retry-After")
	if n, err := strconv.ParseUint(text, 10, 64); err == nil || errors.Is(err, strconv.ErrRange) {
		return time.Duration(min(n, uint64(collectorWait/time.Second))) * time.Second
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	if theirs, err := http.ParseTime(h.Get("Date")); err == nil {
		now = theirs
	}
	return min(max(0, at.Sub(now)), collectorWait)
}
