// SPDX-License-Identifier: Apache-2.0

package otlp

import "testing"

// TestWhichAnswersAreTriedAgain: OTLP names four; after others a batch would stand in the way for ever.
func TestWhichAnswersAreTriedAgain(t *testing.T) {
	again := map[int]bool{429: true, 502: true, 503: true, 504: true}
	for status := 300; status < 600; status++ {
		if got := retryable(status); got != again[status] {
			t.Errorf("%d: %v", status, got)
		}
	}
}
