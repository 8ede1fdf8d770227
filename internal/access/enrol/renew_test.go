// SPDX-License-Identifier: Apache-2.0

package enrol

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestRenewal(t *testing.T) {
	begin := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	rapid.Check(t, func(t *rapid.T) {
		life := time.Duration(rapid.Int64Range(int64(time.Second), int64(100*365*24*time.Hour)).Draw(t, "life"))
		at := RenewAt(begin, begin.Add(life))
		if off := at.Sub(begin) - life/3*2; off < 0 || off > 2 {
			t.Fatalf("after %v of %v", at.Sub(begin), life)
		}
		now := begin.Add(time.Duration(rapid.Int64Range(0, int64(2*life)).Draw(t, "now")))
		wait, left := RenewRetry(now, begin.Add(life)), begin.Add(life).Sub(now)
		if wait < 500*time.Millisecond || wait > 10*time.Minute {
			t.Fatalf("tries again in %v", wait)
		}
		if left >= time.Second && wait > left/2 {
			t.Fatalf("tries again in %v, and the certificate holds for %v", wait, left)
		}
		if left <= 0 && wait < 5*time.Second {
			t.Fatalf("tries again in %v after the end", wait)
		}
	})
	for left, want := range map[time.Duration]time.Duration{
		8 * time.Hour: 10 * time.Minute, time.Hour: 3 * time.Minute, time.Minute: 5 * time.Second, -time.Hour: 5 * time.Second,
		2 * time.Second: 500 * time.Millisecond, 8 * time.Second: 2 * time.Second,
	} {
		if got := RenewRetry(begin, begin.Add(left)); got != want {
			t.Errorf("%v left: tries again in %v, want %v", left, got, want)
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
