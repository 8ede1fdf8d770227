// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"errors"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
)

// link is an address by which a hub is reached. Which one it is, the hub's certificate
// says, again with each connection.
type link struct {
	client  *Client
	address string
	again   chan struct{} // one place: a new connection is wanted
	freed   chan struct{} // one place: the hub is not reached by another address any more

	// With the client's lock.
	hub  *hub // it led to that the last time; nil: not known
	held bool // another address leads there, too, and is used
	last *fault.Fault
	stop func()

	opening bool  // another connection is being made
	over    *conn // that the hub has ended for the one that is being made; it stays in use until that is there
}

func newLink(c *Client, address string) *link {
	return &link{client: c, address: address, again: make(chan struct{}, 1), freed: make(chan struct{}, 1)}
}

func (l *link) renew() { poke(l.again) }
func (l *link) free()  { poke(l.freed) }

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// keep has a connection in use until ctx ends, unless another address has the hub.
// Another one is made when the last has ended, or before it ends, if the hub drains or
// there is a new certificate.
func (l *link) keep(ctx context.Context) {
	g := run.NewGroup(ctx)
	defer l.client.settle(l, nil, false, 0)
	defer g.Wait()
	var cur *conn
	for try := 0; ; {
		l.begin()
		next, err := l.open(ctx)
		if err != nil {
			l.failed()
		}
		var held *heldError
		switch {
		case err == nil:
			l.swap(g, cur, next)
			cur = next
			l.client.settle(l, cur, false, 0)
			begun := time.Now()
			if !l.hold(ctx, cur) {
				return
			}
			if try++; time.Since(begun) > limit.BackoffReset {
				try = 0
			}
			err = cur.why()
		case errors.As(err, &held):
			l.note(nil, true)
			l.client.settle(l, cur, false, 0)
			if !l.rest(ctx, cur, held) {
				return
			}
			try, err = 0, nil
		default:
			l.tried(ctx, err)
			try++
		}
		if cur != nil && cur.over() {
			cur = nil
		}
		wait := run.Backoff(max(0, try-1), limit.BackoffMost, l.client.cfg.Random())
		l.client.settle(l, cur, refusal(err), wait)
		if !l.wait(ctx, wait) {
			return
		}
	}
}

// refusal reports whether the hub has answered, and does not want us: never another way
// after a refusal.
func refusal(err error) bool {
	f := fault.From(err)
	return f != nil && f.Code != fault.CodeHubAway
}

// orderly reports whether a hub that ended the connection so will have us again soon.
func orderly(f *fault.Fault) bool {
	return f == nil || f.Code == fault.CodeHubAway || f.Code == fault.CodeDraining || f.Code == fault.CodeSessionLost
}

// wait is cut short when a new connection is wanted; false at the end of ctx.
func (l *link) wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.again:
	case <-ctx.Done():
		return false
	}
	return true
}

// rest waits until it is worth while to look again where the address leads to.
func (l *link) rest(ctx context.Context, cur *conn, held *heldError) bool {
	most := relayLook
	if !held.until.IsZero() {
		most = time.Until(held.until)
	}
	timer := time.NewTimer(most)
	defer timer.Stop()
	var over chan struct{}
	if cur != nil {
		over = cur.done
	}
	select {
	case <-timer.C:
	case <-l.freed:
	case <-l.again:
	case <-over:
	case <-ctx.Done():
		return false
	}
	return true
}

// hold waits until another connection is wanted; false at the end of ctx.
func (l *link) hold(ctx context.Context, c *conn) bool {
	select {
	case <-c.done:
	case <-c.drained:
	case <-l.again:
	case <-ctx.Done():
		return false
	}
	return true
}

// swap puts a connection into use, and ends the one before.
func (l *link) swap(g *run.Group, old, next *conn) {
	h, c := next.hub, l.client
	c.mu.Lock()
	before := h.cur.Load()
	if before == nil {
		h.out.clear()
	}
	h.cur.Store(next)
	l.last, l.held, l.opening, l.over = nil, false, false, nil
	c.mu.Unlock()
	if c.cfg.Tried != nil {
		c.cfg.Tried(nil) // before its end can be told
	}
	g.Do(func(ctx context.Context) {
		err := next.serve(ctx)
		if ctx.Err() != nil {
			err = nil // that was we
		}
		l.ended(next, err, ctx.Err() != nil)
		close(next.done)
	})
	if before != nil {
		before.leave()
	}
	if old != nil && old.hub != h {
		g.Do(old.retire)
	}
	c.cfg.Log.Info("connected to the relay", "hub", h.name, telemetry.AttrPeer, next.link.address,
		"observed", next.greeting.Observed)
	c.ring()
}

func (l *link) begin() {
	l.client.mu.Lock()
	defer l.client.mu.Unlock()
	l.opening = true
}

// failed is after a connection that did not come about: one that was ended for it is no longer.
func (l *link) failed() {
	l.client.mu.Lock()
	over := l.over
	l.opening, l.over = false, nil
	l.client.mu.Unlock()
	if over != nil {
		l.ended(over, over.why(), false)
	}
}

// ended notes why a connection that had not been replaced is no longer. The hub ends one when it
// welcomes the next, and either may be here first: what is to be sent meanwhile waits for the next.
func (l *link) ended(of *conn, err error, stopped bool) {
	c, h, f := l.client, of.hub, fault.From(err)
	of.end.Store(f)
	c.mu.Lock()
	if l.opening && f != nil && f.Code == fault.CodeSessionLost && h.cur.Load() == of {
		l.over = of
		c.mu.Unlock()
		return
	}
	if !h.cur.CompareAndSwap(of, nil) {
		c.mu.Unlock()
		return
	}
	h.until = time.Now()
	if orderly(f) && !stopped {
		h.until = h.until.Add(relayStable)
	}
	var was *fault.Fault
	if f != nil { // at once: whoever sees that there is no connection sees why
		was = l.noteLocked(f, false)
	}
	c.mu.Unlock()
	c.ring()
	if f != nil {
		l.log(was, f)
		if c.cfg.Ended != nil {
			c.cfg.Ended(f)
		}
	}
}

// tried notes an attempt that came to nothing.
func (l *link) tried(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	f := fault.From(err)
	l.note(f, false)
	if l.client.cfg.Tried != nil {
		l.client.cfg.Tried(f)
	}
}

// note keeps why there is no connection, or no newer one, and logs it when the reason
// is another.
func (l *link) note(f *fault.Fault, held bool) {
	l.client.mu.Lock()
	was := l.noteLocked(f, held)
	l.client.mu.Unlock()
	l.log(was, f)
}

func (l *link) noteLocked(f *fault.Fault, held bool) (was *fault.Fault) {
	was = l.last
	l.last, l.held = f, held
	return was
}

func (l *link) log(was, f *fault.Fault) {
	if f != nil && (was == nil || was.Code != f.Code) {
		l.client.cfg.Log.Warn("not connected to the relay", "address", l.address, telemetry.AttrCode, f.Code,
			telemetry.AttrReason, f.Explain())
	}
}
