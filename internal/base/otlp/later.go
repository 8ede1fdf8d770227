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

// laterError is a failure with a pause that the collector asked for.
type laterError struct {
	error
	wait time.Duration
}

func (e laterError) Error() string {
	return fmt.Sprintf("%v, and asks for a retry in %v", e.error, e.wait)
}
func (e laterError) Unwrap() error { return e.error }

// Wait is the pause that the collector asked for.
func (e laterError) Wait() time.Duration { return e.wait }

// pause is how long to wait after a failure.
func pause(err error) time.Duration {
	var later laterError
	if errors.As(err, &later) {
		return max(limit.AuditRetry, later.wait)
	}
	return limit.AuditRetry
}

// retryAfter reads the pause that an overloaded collector asks for (OTLP 1.x, "OTLP/HTTP
// Throttling"; RFC 9110 section 10.2.3): seconds, or a date, which is compared with the
// collector's clock if the answer has its time. 0: none, or unreadable. It is bounded.
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
