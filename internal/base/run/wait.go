// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// Wait waits, and reports whether it was to the end: false if ctx ended first.
func Wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Every calls fn again and again until ctx ends.
func Every(ctx context.Context, every time.Duration, fn func()) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			fn()
		case <-ctx.Done():
			return nil
		}
	}
}

// Backoff returns the wait before try number n (from 0) to reach a service: from
// limit.BackoffFirst exponential up to most, and full jitter, so that the thousand
// callers of one that was restarted do not return in one instant. random is uniform
// in [0, 1).
func Backoff(n int, most time.Duration, random float64) time.Duration {
	top := most
	if n < 16 {
		top = min(limit.BackoffFirst<<n, most)
	}
	return limit.BackoffFirst/2 + time.Duration(random*float64(top))
}

// Ended is ctx.Err(), and says that the deadline has passed also where ctx does not
// know it yet: package net looks at the deadline by itself, and on a busy machine its
// error is there before the timer of ctx has run.
func Ended(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if d, ok := ctx.Deadline(); ok && !time.Now().Before(d) {
		return context.DeadlineExceeded
	}
	return nil
}
