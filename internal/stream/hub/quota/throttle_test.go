// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// TestWhoHasLeftDoesNotWait: of a thousand streams that would wait for a quarter of an
// hour at the lowest rate, those that have left go on at the next look, those whose
// session ends at once, and neither waits again. The bytes of both are paid for by who
// is still there.
func TestWhoHasLeftDoesNotWait(t *testing.T) {
	for name, leave := range map[string]struct {
		how   func(all []*Throttle, gone func(), lost chan struct{})
		after time.Duration
	}{
		"callers":   {func(_ []*Throttle, gone func(), _ chan struct{}) { gone() }, shapeLook},
		"a session": {func(_ []*Throttle, _ func(), lost chan struct{}) { close(lost) }, 0},
		"streams that end": {func(all []*Throttle, _ func(), _ chan struct{}) {
			for _, x := range all {
				x.End()
			}
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const n, chunk, each = 1000, 64 << 10, limit.RateLeast
				s := newShaper(func() {})
				s.setRate(each)
				s.charge(each, new(pace)) // or the first one who pays would not wait
				defer s.setRate(Unbounded)
				var mu sync.Mutex
				away, lost := false, make(chan struct{})
				left := func() bool { mu.Lock(); defer mu.Unlock(); return away }
				gone := func() { mu.Lock(); defer mu.Unlock(); away = true }
				all := make([]*Throttle, n)
				var wait sync.WaitGroup
				for i := range all {
					x := &Throttle{to: [3]*shaper{s}, lost: lost, Left: left}
					all[i] = x
					wait.Go(func() { x.Pay(chunk) })
				}
				stays := &Throttle{to: [3]*shaper{s}, Left: func() bool { return false }}
				paid := make(chan struct{})
				go func() { defer close(paid); stays.Pay(chunk); stays.Pay(chunk) }()
				synctest.Wait()
				if _, waiting := s.used(); waiting != n+1 {
					t.Fatalf("%d wait", waiting)
				}
				begin := time.Now()
				leave.how(all, gone, lost)
				wait.Wait()
				if took := time.Since(begin); took > leave.after {
					t.Errorf("it took %v", took)
				}
				if name != "streams that end" {
					begin = time.Now()
					all[0].Pay(chunk)
					if took := time.Since(begin); took != 0 {
						t.Errorf("who has left waits %v again", took)
					}
				}
				select {
				case <-paid:
					t.Error("nobody pays for what they moved")
				default:
				}
				if _, waiting := s.used(); waiting > 1 {
					t.Errorf("%d wait still", waiting)
				}
				<-paid
				if took := time.Since(begin); took < n*time.Second/2 {
					t.Errorf("the rate was exceeded: all is paid after %v", took)
				}
			})
		})
	}
}
