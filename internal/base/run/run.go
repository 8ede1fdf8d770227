// SPDX-License-Identifier: Apache-2.0

// Package run owns goroutines: a Group starts functions, hands each the same
// context, and waits for all of them. It also has timers and backoff for such functions.
// It restarts nothing and does not know what it runs.
package run

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// Group runs functions until they have all returned. The first error of a
// function that was started with Go cancels the group's context.
type Group struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup

	mu   sync.Mutex
	errs []error
}

// NewGroup makes a group whose context ends with parent.
func NewGroup(parent context.Context) *Group {
	ctx, cancel := context.WithCancelCause(parent)
	return &Group{ctx: ctx, cancel: cancel}
}

// Context is the context of the group's functions.
func (g *Group) Context() context.Context { return g.ctx }

// Stop cancels the group's context; Wait then waits for the functions.
func (g *Group) Stop() { g.cancel(nil) }

// Go starts fn. An error other than the group's own cancellation stops the
// whole group and is returned by Wait, with the name in front.
func (g *Group) Go(name string, fn func(context.Context) error) {
	g.wg.Add(1)
	go func() {
		defer g.wg.Done()
		err := fn(g.ctx)
		if err == nil || errors.Is(err, context.Canceled) && g.ctx.Err() != nil {
			return
		}
		err = fmt.Errorf("%s: %w", name, err)
		g.mu.Lock()
		g.errs = append(g.errs, err)
		g.mu.Unlock()
		g.cancel(err)
	}()
}

// Do starts fn, whose end does not affect the group: one connection, one stream.
func (g *Group) Do(fn func(context.Context)) {
	g.wg.Add(1)
	go func() {
		defer g.wg.Done()
		fn(g.ctx)
	}()
}

// Begin counts work that has no goroutine of the group: Wait waits until done is called.
// It may be called while another function of the group runs.
func (g *Group) Begin() (ctx context.Context, done func()) {
	g.wg.Add(1)
	return g.ctx, g.wg.Done
}

// Wait waits for every function and returns their errors, joined.
func (g *Group) Wait() error {
	g.wg.Wait()
	g.cancel(nil)
	g.mu.Lock()
	defer g.mu.Unlock()
	return errors.Join(g.errs...)
}

// WaitContext waits like Wait; it reports false if ctx ended first. The functions then
// still run, and the caller must have a way to end them.
func (g *Group) WaitContext(ctx context.Context) bool {
	done := make(chan struct{})
	go func() {
		g.wg.Wait()
		close(done)
	}()
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}

// OnDone calls fn once when ctx ends, unless the returned stop is called
// first. Stop waits for an fn that has begun.
func OnDone(ctx context.Context, fn func()) (stop func()) {
	h := &hook{fn: fn}
	h.due.Add(1)
	h.halt = context.AfterFunc(ctx, h.run)
	return h.stop
}

// hook is the state of one OnDone; every stream has several.
type hook struct {
	fn   func()
	halt func() bool
	due  sync.WaitGroup // until fn has run or never will
}

func (h *hook) run() {
	defer h.due.Done()
	h.fn()
}

func (h *hook) stop() {
	if h.halt() { // at most once, and never if run was called
		h.due.Done()
	}
	h.due.Wait()
}

// Limiter bounds how many operations run at once, without a queue.
type Limiter struct{ slots chan struct{} }

// NewLimiter makes a limiter with n slots.
func NewLimiter(n int) *Limiter { return &Limiter{slots: make(chan struct{}, n)} }

// TryAcquire takes a slot and reports whether one was free.
func (l *Limiter) TryAcquire() bool {
	select {
	case l.slots <- struct{}{}:
		return true
	default:
		return false
	}
}

// Acquire waits for a slot or for the end of ctx.
func (l *Limiter) Acquire(ctx context.Context) error {
	select {
	case l.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Release frees a slot.
func (l *Limiter) Release() { <-l.slots }
