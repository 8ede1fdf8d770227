// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"encoding/json"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
)

func TestADurationIsReadAsItIsWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := v1alpha1.Duration{Duration: time.Duration(rapid.Int64().Filter(func(n int64) bool { return n != 0 }).Draw(t, "nanoseconds"))}
		text, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var got v1alpha1.Duration
		if err := json.Unmarshal(text, &got); err != nil || got != want {
			t.Fatalf("%s was read as %v, %v", text, got, err)
		}
	})
}

func TestWhatIsNoDurationIsRefused(t *testing.T) {
	for _, text := range []string{"", "0", "0s", "0h0m", "30", "5 minutes", "1d", "s", "1h-1m"} {
		var d v1alpha1.Duration
		if err := d.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q was read as %v", text, d)
		}
	}
}
