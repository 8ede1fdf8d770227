// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// The first pass comes at once, changes of one moment are one pass, a change during a pass is another one, and a pass
// that asks for a time gets one then, unless a change comes before.
func TestLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const gather = 50 * time.Millisecond
		l := NewLoop(gather)
		began := time.Now()
		var passes []time.Duration
		next := []time.Duration{0, 0, time.Minute, time.Minute, 0, 0}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			l.Run(ctx, func(context.Context) time.Duration {
				passes = append(passes, time.Since(began))
				if len(passes) == 2 {
					l.Wake() // as an edit during a pass
				}
				return next[len(passes)-1]
			})
		}()
		time.Sleep(time.Second)
		for range 3 {
			l.Wake()
			time.Sleep(gather / 10)
		}
		time.Sleep(time.Second)
		time.Sleep(30 * time.Second)
		l.Wake()
		time.Sleep(time.Hour)
		cancel()
		<-done
		at := time.Second
		woken := at + gather
		edited := at + gather + gather
		early := at + 3*(gather/10) + 31*time.Second + gather
		want := []time.Duration{0, woken, edited, early, early + time.Minute}
		if len(passes) != len(want) {
			t.Fatalf("passes at %v, not %v", passes, want)
		}
		for i := range want {
			if passes[i] != want[i] {
				t.Errorf("passes at %v, not %v", passes, want)
			}
		}
	})
}
