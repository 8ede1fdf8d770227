// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tombolo-io/tombolo/internal/carrier"
	"github.com/tombolo-io/tombolo/internal/fault"
	"github.com/tombolo-io/tombolo/internal/limit"
)

// controlLink is a session of which only the agent's streams matter.
type controlLink struct {
	carrier.Session
	came chan carrier.Stream
	done chan struct{}
	end  sync.Once
}

func newControlLink() *controlLink {
	return &controlLink{came: make(chan carrier.Stream), done: make(chan struct{})}
}

func (l *controlLink) AcceptStream(ctx context.Context) (carrier.Stream, error) {
	select {
	case s := <-l.came:
		return s, nil
	case <-l.done:
		return nil, errors.New("ended")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *controlLink) Done() <-chan struct{} { return l.done }

func (l *controlLink) Close() error {
	l.end.Do(func() { close(l.done) })
	return nil
}

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
		link := newControlLink()
		var all []*controlStream
		for i := range 5 {
			all = append(all, &controlStream{name: i})
		}
		c := newControls(link, all[0])
		go c.accept(t.Context())
		link.came <- all[1]
		synctest.Wait()
		if !all[0].reset.Load() || all[1].reset.Load() {
			t.Error("the stream in use makes no room for a newer one")
		}
		link.came <- all[2]
		link.came <- all[3]
		synctest.Wait()
		got, err := c.take(t.Context())
		if err != nil || got.(*controlStream).name != 3 || !all[1].reset.Load() || !all[2].reset.Load() || all[3].reset.Load() {
			t.Errorf("took %+v, %v", got, err)
		}
		go func() {
			time.Sleep(limit.Hello / 2)
			link.came <- all[4]
		}()
		if got, err := c.take(t.Context()); err != nil || got.(*controlStream).name != 4 || !all[3].reset.Load() {
			t.Errorf("took %+v, %v", got, err)
		}
		link.Close()
	})
}

func TestNoOtherControlStream(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(link *controlLink, cancel func())
		took time.Duration
		want error
	}{
		"the agent opens none":   {func(*controlLink, func()) {}, limit.Hello, fault.New(fault.CodeSessionLost, "")},
		"the session ends":       {func(l *controlLink, _ func()) { l.Close() }, time.Second, fault.New(fault.CodeSessionLost, "")},
		"nobody wants one still": {func(_ *controlLink, cancel func()) { cancel() }, time.Second, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				link := newControlLink()
				controls := newControls(link, &controlStream{})
				time.AfterFunc(time.Second, func() { c.end(link, cancel) })
				begin := time.Now()
				_, err := controls.take(ctx)
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
	synctest.Test(t, func(t *testing.T) {
		link := newControlLink()
		first := &controlStream{}
		c := newControls(link, first)
		go c.accept(t.Context())
		before := runtime.NumGoroutine()
		var all []*controlStream
		for range 10_000 {
			s := &controlStream{}
			all = append(all, s)
			link.came <- s
		}
		synctest.Wait()
		if n := runtime.NumGoroutine(); n > before {
			t.Errorf("%d goroutines instead of %d", n, before)
		}
		kept := 0
		for _, s := range all {
			if !s.reset.Load() {
				kept++
			}
		}
		if kept != 1 || all[len(all)-1].reset.Load() || !first.reset.Load() {
			t.Errorf("%d of the streams are kept", kept)
		}
		link.Close()
	})
}
