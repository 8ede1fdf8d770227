// SPDX-License-Identifier: Apache-2.0

package run_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/run"
)

func TestAlarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var at []time.Duration
		var next atomic.Int64
		next.Store(int64(3 * time.Second))
		a := run.NewAlarm(func() time.Duration {
			at = append(at, time.Since(begin))
			return time.Duration(next.Load())
		})
		a.Ring() // before the start: nothing
		time.Sleep(time.Second)
		a.Start() // 1 s
		time.Sleep(4 * time.Second)
		a.Ring() // 5 s, beside 4 s
		time.Sleep(2 * time.Second)
		next.Store(-1)
		time.Sleep(time.Hour) // 8 s, and no more
		a.Ring()
		time.Sleep(time.Second)
		a.Stop()
		a.Ring() // after the end: nothing
		time.Sleep(time.Hour)
		want := []time.Duration{time.Second, 4 * time.Second, 5 * time.Second, 8 * time.Second, time.Hour + 7*time.Second}
		if len(at) != len(want) {
			t.Fatalf("called at %v, want %v", at, want)
		}
		for i := range want {
			if at[i] != want[i] {
				t.Errorf("called at %v, want %v", at, want)
			}
		}
	})
}

// TestAlarmRungBeforeItsTime: a function that names no next time is not called at the
// one that it named before.
func TestAlarmRungBeforeItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		a := run.NewAlarm(func() time.Duration {
			if calls++; calls > 1 {
				return -1
			}
			return time.Minute
		})
		a.Start()
		time.Sleep(time.Second)
		a.Ring()
		time.Sleep(time.Hour)
		a.Stop()
		if calls != 2 {
			t.Errorf("called %d times", calls)
		}
	})
}

// TestAlarmsThatRingTogether: many in one bubble, which the race detector outlives
// (golang/go#78156).
func TestAlarmsThatRingTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				calls := 0
				a := run.NewAlarm(func() time.Duration { calls++; return time.Hour })
				a.Start()
				for range 2000 {
					a.Ring()
					time.Sleep(time.Nanosecond)
				}
				a.Stop()
				if calls < 2000 {
					t.Errorf("called %d times", calls)
				}
			})
		}
		all.Wait()
	})
}

// TestAlarmRungWhileItRuns: what happens while the function looks is looked at
// once more, never by two at a time, and Stop waits for the one.
func TestAlarmRungWhileItRuns(t *testing.T) {
	for range 200 {
		var running, calls atomic.Int32
		enter, leave := make(chan struct{}), make(chan struct{})
		a := run.NewAlarm(func() time.Duration {
			if running.Add(1) > 1 {
				t.Error("two at a time")
			}
			calls.Add(1)
			enter <- struct{}{}
			<-leave
			running.Add(-1)
			return time.Hour
		})
		a.Start()
		<-enter
		for range 10 {
			a.Ring()
		}
		leave <- struct{}{}
		<-enter // the second call
		go func() { leave <- struct{}{} }()
		go func() { // a third one, which a late timer may still cause
			for range enter {
				leave <- struct{}{}
			}
		}()
		a.Stop()
		if n := calls.Load(); n < 2 || running.Load() != 0 {
			t.Fatalf("called %d times, %d run on", n, running.Load())
		}
		close(enter)
	}
}

// TestAlarmLosesNoRing: each ring is followed by a call that begins after it.
func TestAlarmLosesNoRing(t *testing.T) {
	var rung, seen atomic.Int64
	looked := make(chan struct{}, 1)
	a := run.NewAlarm(func() time.Duration {
		seen.Store(rung.Load())
		select {
		case looked <- struct{}{}:
		default:
		}
		return time.Hour
	})
	a.Start()
	defer a.Stop()
	for i := range int64(20_000) {
		rung.Store(i)
		a.Ring()
		if i%3 != 0 { // the next ring comes into the midst of the call
			continue
		}
		for seen.Load() < i {
			select {
			case <-looked:
			case <-time.After(10 * time.Second):
				t.Fatalf("ring %d was not followed by a call", i)
			}
		}
	}
}
