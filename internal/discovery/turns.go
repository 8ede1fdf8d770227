// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"math"
	"net/netip"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	sdr "github.com/tombolo-io/tombolo/proto/sidero"
)

// allowance is what an address may still call: a bucket that fills with time. Calls
// that wait have paid in advance, so it may be below zero, and each has its turn in
// the order in which they came.
type allowance struct {
	left float64
	at   time.Time // of left; zero: it is full
}

// take pays for a call. It gives the wait until the call's turn, and false, with
// nothing paid, for a call whose turn comes later than its caller waits.
func (a allowance) take(now time.Time, r Rates, cost int,
	patience time.Duration) (next allowance, wait time.Duration, ok bool) {
	next = allowance{float64(r.Burst), now}
	if !a.at.IsZero() {
		next.left = min(next.left, a.left+now.Sub(a.at).Seconds()*float64(r.PerSecond))
	}
	next.left -= float64(min(cost, r.Burst)) // one above the burst would never have its turn
	wait = time.Duration(math.Ceil(max(0, -next.left) / float64(r.PerSecond) * float64(time.Second)))
	if wait > 0 && wait > patience {
		return a, 0, false
	}
	return next, wait, true
}

// patience is how long a call may wait: until its caller's deadline, and at most
// discoveryTurn.
func patience(ctx context.Context, now time.Time) time.Duration {
	if at, has := ctx.Deadline(); has {
		return min(at.Sub(now), discoveryTurn)
	}
	return discoveryTurn
}

// costOf is what a call takes of its address's allowance. The answer of List is a
// whole cluster; all others cost about the same.
func costOf(method string) int {
	if method == sdr.Cluster_List_FullMethodName {
		return discoveryListCost
	}
	return 1
}

// turn waits for the address's turn. A call that would wait for longer than its
// caller does is refused at once. When the drain begins, those that wait go ahead:
// they are few, and a refused Talos node learns of no member for half a lease.
func (c *callers) turn(ctx context.Context, a netip.Addr, cost int) error {
	now := time.Now()
	c.mu.Lock()
	one := c.find(a)
	rates := c.rates
	next, wait, ok := one.calls.take(now, rates, cost, patience(ctx, now))
	if ok {
		one.calls = next
	}
	c.mu.Unlock()
	switch {
	case !ok:
		return fault.New(fault.CodeLimit, "the call is not taken").
			Whyf("%v makes more than %d calls a second, and its turn does not come in time", one.key, rates.PerSecond).
			Hint("make fewer, or raise rates.perSecond and rates.burst of the service").After(time.Second)
	case wait <= 0:
		return nil
	}
	err := c.await(ctx, a, wait)
	if err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.find(a).calls.left += float64(min(cost, rates.Burst))
	}
	return err
}

// await lets a call wait, if there is room for one more that does.
func (c *callers) await(ctx context.Context, a netip.Addr, d time.Duration) error {
	if c.isDraining() {
		return drained()
	}
	leave, err := c.queue(a)
	if err != nil {
		return err
	}
	defer leave()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.draining:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

func (c *callers) isDraining() bool {
	select {
	case <-c.draining:
		return true
	default:
		return false
	}
}

// queue takes a place for a call that waits, for its turn or for the store; leave
// must follow.
func (c *callers) queue(a netip.Addr) (leave func(), err error) {
	if n := c.waiting.Add(1); n > discoveryAllWaiting {
		c.waiting.Add(-1)
		return nil, fault.New(fault.CodeLimit, "the call is not taken").Whyf("%d calls wait, which is the bound", n-1).
			Hint("call again later, or use another service")
	}
	release, err := c.hold(a, holdWait, 1, discoveryWaiting, discoveryAllWaiting)
	if err != nil {
		c.waiting.Add(-1)
		return nil, err
	}
	return func() {
		c.waiting.Add(-1)
		release()
	}, nil
}

// persist does what is asked of the store, and while that is away tries again for as
// long as the caller waits: it is mostly back within seconds.
func (s *Service) persist(ctx context.Context, do func() error) error {
	now := time.Now()
	until := now.Add(patience(ctx, now))
	err := do()
	if !fault.Has(err, fault.CodeStoreAway) {
		return err
	}
	leave, full := s.callers.queue(callerOf(ctx).Addr())
	if full != nil {
		return err
	}
	defer leave()
	tick := time.NewTicker(limit.DiscoveryStoreRetry)
	defer tick.Stop()
	for fault.Has(err, fault.CodeStoreAway) && time.Until(until) > limit.DiscoveryStoreRetry {
		select {
		case <-tick.C:
			err = do()
		case <-s.draining:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return err
}
