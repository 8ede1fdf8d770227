// SPDX-License-Identifier: Apache-2.0

package run_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/run"
)

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		if !run.Wait(t.Context(), time.Minute) || time.Since(begun) != time.Minute {
			t.Errorf("it waited for %v", time.Since(begun))
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun = time.Now()
		if run.Wait(short, time.Minute) || time.Since(begun) != time.Second {
			t.Errorf("it waited for %v beyond the end", time.Since(begun))
		}
	})
}

func TestEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3500*time.Millisecond)
		defer cancel()
		n := 0
		if err := run.Every(ctx, time.Second, func() { n++ }); err != nil || n != 3 {
			t.Errorf("%d calls, %v", n, err)
		}
	})
}

func TestBackoffIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 1_000_000).Draw(t, "try")
		most := rapid.SampledFrom([]time.Duration{limit.BackoffMost, limit.DiscoveryBackoff}).Draw(t, "most")
		random := rapid.Float64Range(0, 1).Filter(func(f float64) bool { return f < 1 }).Draw(t, "random")
		got := run.Backoff(n, most, random)
		if got < limit.BackoffFirst/2 || got > limit.BackoffFirst/2+most {
			t.Fatalf("%v", got)
		}
		if later := run.Backoff(n+1, most, random); later < got {
			t.Fatalf("%v after %v with the same luck", later, got)
		}
	})
	for n, most := range map[int]time.Duration{0: 200 * time.Millisecond, 1: 400 * time.Millisecond, 5: 6400 * time.Millisecond, 7: limit.BackoffMost, 62: limit.BackoffMost, 64: limit.BackoffMost} {
		if got := run.Backoff(n, limit.BackoffMost, 0.5); got != limit.BackoffFirst/2+most/2 {
			t.Errorf("try %d: %v", n, got)
		}
	}
}

// TestEnded: a deadline that has passed counts before the context has learnt of it.
func TestEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		never := context.WithoutCancel(t.Context())
		for name, c := range map[string]struct {
			ctx  context.Context
			want error
		}{
			"without an end":       {never, nil},
			"cancelled":            {canceled, context.Canceled},
			"with time left":       {unknowing{never, time.Now().Add(1)}, nil},
			"at its deadline":      {unknowing{never, time.Now()}, context.DeadlineExceeded},
			"cancelled and beyond": {unknowing{canceled, time.Now().Add(-1)}, context.Canceled},
		} {
			if got := run.Ended(c.ctx); got != c.want {
				t.Errorf("%s: %v, want %v", name, got, c.want)
			}
		}
	})
}

// unknowing is a context that does not learn that its deadline has passed.
type unknowing struct {
	context.Context
	at time.Time
}

func (u unknowing) Deadline() (time.Time, bool) { return u.at, true }
