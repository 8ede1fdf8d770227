// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// Wait waits for d, and reports false if ctx ended first.
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

// Every calls fn at intervals until ctx ends.
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

// Backoff returns the wait before try number n (from 0) to reach a service: exponential
// from limit.BackoffFirst up to most, with full jitter, so that a thousand callers of a
// restarted service do not return at the same moment. random is uniform in [0, 1).
func Backoff(n int, most time.Duration, random float64) time.Duration {
	top := most
	if n < 16 {
		top = min(limit.BackoffFirst<<n, most)
	}
	return limit.BackoffFirst/2 + time.Duration(random*float64(top))
}

// Ended is ctx.Err(), but reports a passed deadline even before ctx does: package net
// checks the deadline itself, and on a busy machine its error comes before the timer of
// ctx fires.
func Ended(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if d, ok := ctx.Deadline(); ok && !time.Now().Before(d) {
		return context.DeadlineExceeded
	}
	return nil
}
