// SPDX-License-Identifier: Apache-2.0

package otlp

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// TestWhichAnswersAreTriedAgain: OTLP names four; after others a batch would stand in the way for ever.
func TestWhichAnswersAreTriedAgain(t *testing.T) {
	again := map[int]bool{429: true, 502: true, 503: true, 504: true}
	for status := 300; status < 600; status++ {
		if got := retryable(status); got != again[status] {
			t.Errorf("%d: %v", status, got)
		}
	}
}

// TestHowLongACollectorIsLeftAlone: as long as it says, in seconds or by a date, and
// no longer than the bound.
func TestHowLongACollectorIsLeftAlone(t *testing.T) {
	now := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	date := func(d time.Duration) string { return now.Add(d).Format(http.TimeFormat) }
	for _, c := range []struct {
		status      int
		after, date string
		want        time.Duration
	}{
		{429, "7", "", 7 * time.Second},
		{503, "7", "", 7 * time.Second},
		{502, "7", "", 0}, // OTLP knows it of the other two
		{504, "7", "", 0},
		{429, "", "", 0},
		{429, "0", "", 0},
		{429, "-1", "", 0},
		{429, "1.5", "", 0},
		{429, "soon", "", 0},
		{429, "120", "", collectorWait},
		{429, "121", "", collectorWait},
		{429, "99999999999999999999999", "", collectorWait},
		{429, "18446744073709551615", "", collectorWait},
		{503, date(30 * time.Second), "", 30 * time.Second},
		{503, date(-time.Hour), "", 0},
		{503, date(24 * time.Hour), "", collectorWait},
		{503, date(time.Hour + 5*time.Second), date(time.Hour), 5 * time.Second}, // its clock is ahead
		{503, date(5 * time.Second), "yesterday", 5 * time.Second},
		{503, now.Add(time.Minute).Format(time.RFC850), "", time.Minute},
		{503, now.Add(time.Minute).Format(time.ANSIC), "", time.Minute},
	} {
		h := http.Header{}
		h.Set("Retry-After", c.after)
		h.Set("Date", c.date)
		if got := retryAfter(c.status, h, now); got != c.want {
			t.Errorf("%d with %q at %q: %v, want %v", c.status, c.after, c.date, got, c.want)
		}
	}
	for want, err := range map[time.Duration]error{
		limit.AuditRetry: laterError{errors.New("x"), time.Millisecond},
		time.Minute:      fmt.Errorf("sent: %w", laterError{errors.New("x"), time.Minute}),
	} {
		if got := pause(err); got != want {
			t.Errorf("%v after %v", got, err)
		}
	}
	if got := pause(errors.New("x")); got != limit.AuditRetry {
		t.Errorf("%v after an error without a word", got)
	}
}
