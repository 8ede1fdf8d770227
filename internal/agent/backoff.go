// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"time"

	"github.com/tombolo-io/tombolo/internal/limit"
)

// backoff gives the wait before try number n (from 0): exponential with a cap,
// and full jitter so that a thousand agents of a restarted hub do not return in
// one instant. random is uniform in [0, 1).
func backoff(n int, random float64) time.Duration {
	top := limit.BackoffMost
	if n < 16 {
		top = min(limit.BackoffFirst<<n, limit.BackoffMost)
	}
	return limit.BackoffFirst/2 + time.Duration(random*float64(top))
}

// renewAt is when a certificate shall be renewed: at two thirds of its life.
func renewAt(notBefore, notAfter time.Time) time.Time {
	return notBefore.Add(notAfter.Sub(notBefore) * 2 / 3)
}

// renewRetry is the wait after a failed renewal: often enough to use what is
// left of the life, seldom enough not to press a hub that is down.
func renewRetry(now, notAfter time.Time) time.Duration {
	return min(max(notAfter.Sub(now)/20, 5*time.Second), 10*time.Minute)
}
