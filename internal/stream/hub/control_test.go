// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
)

// controlStream remembers whether it was reset.
type controlStream struct {
	carrier.Stream
	name  int
	reset atomic.Bool
}

func (s *controlStream) Reset(uint32) error {
	s.reset.Store(true)
	return nil
}

func TestTheNewestControlStreamCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		done := make(chan struct{})
		var all []*controlStream
		for i := range 5 {
			all = append(all, &controlStream{name: i})
		}
		c := newControls()
		c.offer(all[0])
		if got, err := c.take(t.Context(), done); err != nil || got.(*controlStream).name != 0 || all[0].reset.Load() {
			t.Errorf("took %+v, %v", got, err)
		}
		c.offer(all[1])
		if !all[0].reset.Load() || all[1].reset.Load() {
			t.Error("the stream in use makes no room for a newer one")
		}
		c.offer(all[2])
		c.offer(all[3])
		got, err := c.take(t.Context(), done)
		if err != nil || got.(*controlStream).name != 3 || !all[1].reset.Load() || !all[2].reset.Load() || all[3].reset.Load() {
			t.Errorf("took %+v, %v", got, err)
		}
		time.AfterFunc(limit.Hello/2, func() { c.offer(all[4]) })
		got, err = c.take(t.Context(), done)
		synctest.Wait() // the one before is reset after this one is offered
		if err != nil || got.(*controlStream).name != 4 || !all[3].reset.Load() {
			t.Errorf("took %+v, %v", got, err)
		}
	})
}

func TestNoOtherControlStream(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(done chan struct{}, cancel func())
		took time.Duration
		want error
	}{
		"the agent opens none":   {func(chan struct{}, func()) {}, limit.Hello, fault.New(fault.CodeSessionLost, "")},
		"the session ends":       {func(done chan struct{}, _ func()) { close(done) }, time.Second, fault.New(fault.CodeSessionLost, "")},
		"nobody wants one still": {func(_ chan struct{}, cancel func()) { cancel() }, time.Second, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				done := make(chan struct{})
				time.AfterFunc(time.Second, func() { c.end(done, cancel) })
				begin := time.Now()
				_, err := newControls().take(ctx, done)
				if !errors.Is(err, c.want) || time.Since(begin) != c.took {
					t.Errorf("%v after %v, want %v after %v", err, time.Since(begin), c.want, c.took)
				}
			})
		})
	}
}

// TestControlStreamsInALoop: a peer that opens one after the other gets each but
// the newest reset, and costs no goroutine.
func TestControlStreamsInALoop(t *testing.T) {
	c := newControls()
	before := runtime.NumGoroutine()
	var all []*controlStream
	for range 10_000 {
		s := &controlStream{}
		all = append(all, s)
		c.offer(s)
	}
	if n := runtime.NumGoroutine(); n > before {
		t.Errorf("%d goroutines instead of %d", n, before)
	}
	kept := 0
	for _, s := range all {
		if !s.reset.Load() {
			kept++
		}
	}
	if kept != 1 || all[len(all)-1].reset.Load() {
		t.Errorf("%d of the streams are kept", kept)
	}
}
