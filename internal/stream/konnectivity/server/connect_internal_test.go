// SPDX-License-Identifier: Apache-2.0

package server

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-io/tombolo/internal/stream/carrier"
)

// waiting is a target that may be told that nobody waits for it.
type waiting struct {
	carrier.Stream
	finished bool
	excused  atomic.Bool
}

func (w *waiting) CloseWrite() error { w.finished = true; return nil }
func (w *waiting) Excuse()           { w.excused.Store(true) }

// TestACallerThatHasLeft excuses its target, which has a second for what came before; one that has only finished waits
// for an answer.
func TestACallerThatHasLeft(t *testing.T) {
	for name, left := range map[string]bool{"finished": false, "left": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				target := &waiting{}
				if err := (timed{Stream: target, left: func() (bool, bool) { return true, left }}).CloseWrite(); err != nil {
					t.Fatal(err)
				}
				time.Sleep(lastWords - time.Millisecond)
				synctest.Wait()
				if !target.finished || target.excused.Load() {
					t.Error("the target is not told that the caller has finished, or has no second")
				}
				time.Sleep(time.Millisecond)
				synctest.Wait()
				if target.excused.Load() != left {
					t.Errorf("after a second the target is excused: %v", !left)
				}
			})
		})
	}
}
