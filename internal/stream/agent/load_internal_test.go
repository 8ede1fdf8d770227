// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestLoadDue(t *testing.T) {
	for _, c := range []struct {
		streams, told int64
		since, wait   time.Duration
		due           bool
	}{
		{0, 0, time.Hour, 0, false},
		{1, 0, time.Hour, 0, true},
		{0, 1, time.Hour, 0, true},
		{12, 10, time.Hour, 0, false}, // a fifth
		{13, 10, time.Hour, 0, true},
		{8, 10, time.Hour, 0, false},
		{7, 10, time.Hour, 0, true},
		{20, 10, loadEvery, 0, true},
		{20, 10, loadEvery - 1, 1, true},
		{20, 10, 0, loadEvery, true},
	} {
		wait, due := loadDue(c.streams, c.told, c.since)
		if due != c.due || due && wait != c.wait {
			t.Errorf("%d after %d, told %v ago: %v after %v, want %v after %v", c.streams, c.told, c.since, due, wait, c.due, c.wait)
		}
	}
}

// TestLoadIsToldSeldom: of 10,000 streams a second that come and go a hub hears four
// times a second, and at last how many there are.
func TestLoadIsToldSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []int64
		var at []time.Time
		l := &load{tell: func(n int64) {
			told, at = append(told, n), append(at, time.Now())
		}}
		var n atomic.Int64
		for i := range 50_000 {
			n.Store(int64(i*i) % 37)
			l.changed(n.Load)
			time.Sleep(100 * time.Microsecond)
		}
		n.Store(1000)
		l.changed(n.Load)
		time.Sleep(loadEvery)
		synctest.Wait()
		l.mu.Lock()
		if len(told) < 10 || len(told) > 23 || told[len(told)-1] != 1000 {
			t.Errorf("in 5 s the hub was told %v", told)
		}
		for i := 1; i < len(at); i++ {
			if d := at[i].Sub(at[i-1]); d < loadEvery {
				t.Errorf("told again after %v", d)
			}
		}
		before := len(told)
		l.mu.Unlock()
		n.Store(0)
		l.changed(n.Load)
		l.end() // with what is to be told later
		time.Sleep(time.Minute)
		l.changed(n.Load)
		if len(told) > before {
			t.Error("told after the end")
		}
	})
}
