// SPDX-License-Identifier: Apache-2.0

package run_test

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/tombolo-io/tombolo/internal/base/run"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func untilDone(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestAGroupWaitsForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := run.NewGroup(t.Context())
		var ended atomic.Int32
		for i := range 5 {
			g.Go("worker", func(context.Context) error {
				time.Sleep(time.Duration(i) * time.Second)
				ended.Add(1)
				return nil
			})
			g.Do(func(context.Context) {
				time.Sleep(time.Duration(i) * time.Minute)
				ended.Add(1)
			})
		}
		begin := time.Now()
		if err := g.Wait(); err != nil || ended.Load() != 10 || time.Since(begin) != 4*time.Minute {
			t.Errorf("%v after %v with %d ended", err, time.Since(begin), ended.Load())
		}
		if g.Context().Err() == nil {
			t.Error("the context outlives the group")
		}
	})
}

func TestAGroupWaitsForWorkWithoutItsGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := run.NewGroup(t.Context())
		var ended atomic.Bool
		g.Do(func(context.Context) {
			ctx, done := g.Begin()
			go func() {
				<-ctx.Done()
				time.Sleep(time.Minute)
				ended.Store(true)
				done()
			}()
		})
		g.Stop()
		if err := g.Wait(); err != nil || !ended.Load() {
			t.Errorf("a group ended with %v, its work over: %v", err, ended.Load())
		}
	})
}

func TestTheFirstErrorStopsTheGroup(t *testing.T) {
	g := run.NewGroup(t.Context())
	g.Go("steady", untilDone)
	g.Do(func(ctx context.Context) { untilDone(ctx) })
	g.Go("broken", func(context.Context) error { return io.ErrClosedPipe })
	err := g.Wait()
	if !errors.Is(err, io.ErrClosedPipe) || err.Error() != "broken: io: read/write on closed pipe" {
		t.Errorf("%v", err)
	}
	if cause := context.Cause(g.Context()); !errors.Is(cause, io.ErrClosedPipe) {
		t.Errorf("the cause of the end is %v", cause)
	}
}

func TestAllErrorsAreTold(t *testing.T) {
	g := run.NewGroup(t.Context())
	g.Go("one", func(context.Context) error { return io.ErrClosedPipe })
	g.Go("two", func(ctx context.Context) error { <-ctx.Done(); return io.ErrNoProgress })
	if err := g.Wait(); !errors.Is(err, io.ErrClosedPipe) || !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("%v", err)
	}
}

func TestStopAndTheParentEndAGroupInOrder(t *testing.T) {
	for name, end := range map[string]func(g *run.Group, cancel context.CancelFunc){
		"stop":       func(g *run.Group, _ context.CancelFunc) { g.Stop() },
		"the parent": func(_ *run.Group, cancel context.CancelFunc) { cancel() },
	} {
		t.Run(name, func(t *testing.T) {
			parent, cancel := context.WithCancel(t.Context())
			defer cancel()
			g := run.NewGroup(parent)
			g.Go("worker", untilDone)
			end(g, cancel)
			if err := g.Wait(); err != nil {
				t.Errorf("an ordered end is an error: %v", err)
			}
		})
	}
	t.Run("a cancelled call of something else is an error", func(t *testing.T) {
		g := run.NewGroup(t.Context())
		g.Go("worker", func(context.Context) error { return context.Canceled })
		if err := g.Wait(); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	})
}

func TestWaitContextHasABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := run.NewGroup(t.Context())
		g.Do(func(context.Context) { time.Sleep(time.Minute) })
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if g.WaitContext(short) {
			t.Error("it did not wait")
		}
		long, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if !g.WaitContext(long) {
			t.Error("it waited too long")
		}
		g.Wait()
	})
}

func TestOnDone(t *testing.T) {
	t.Run("calls once when the context ends", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		called := make(chan struct{}, 2)
		stop := run.OnDone(ctx, func() { called <- struct{}{} })
		cancel()
		<-called
		stop()
		stop()
		if len(called) != 0 {
			t.Error("called twice")
		}
	})
	t.Run("does not call after stop", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		stop := run.OnDone(ctx, func() { t.Error("called") })
		stop()
		cancel()
		stop()
	})
	t.Run("stop waits for a call that has begun", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			var ended atomic.Bool
			stop := run.OnDone(ctx, func() {
				time.Sleep(time.Minute)
				ended.Store(true)
			})
			cancel()
			synctest.Wait()
			if stop(); !ended.Load() {
				t.Error("stop returned while the call ran")
			}
		})
	})
}

func TestLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := run.NewLimiter(2)
		if !l.TryAcquire() || l.Acquire(t.Context()) != nil || l.TryAcquire() {
			t.Fatal("there are not two places")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := l.Acquire(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a full limiter: %v", err)
		}
		got := make(chan error)
		go func() { got <- l.Acquire(t.Context()) }()
		synctest.Wait()
		l.Release()
		if err := <-got; err != nil {
			t.Errorf("a place that was given back: %v", err)
		}
		if l.TryAcquire() {
			t.Error("one place was given twice")
		}
	})
}
