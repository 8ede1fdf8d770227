// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
)

// news wakes the merger. However often it is woken, one merge takes all.
type news struct {
	soon  chan struct{}
	later chan struct{}
}

func newNews() *news { return &news{soon: make(chan struct{}, 1), later: make(chan struct{}, 1)} }

// changed asks for a merge soon.
func (n *news) changed() { signal(n.soon) }

// renewed asks for a merge later: only leases have changed.
func (n *news) renewed() { signal(n.later) }

// signal leaves a sign in a channel with room for one.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// await waits for news, for a time, or for a while after leases were renewed: in a large
// cluster some are renewed at any moment, and a merge looks at all members.
func (n *news) await(ctx context.Context, next time.Time) (changed, renewed bool) {
	timer, stop := timerAt(next)
	defer stop()
	later := n.later
	var over <-chan time.Time
	for {
		select {
		case <-n.soon:
			return true, renewed
		case <-later:
			renewed, later, over = true, nil, time.After(limit.DiscoveryRenewals)
		case <-over:
			return false, renewed
		case <-timer:
			return false, renewed
		case <-ctx.Done():
			return false, renewed
		}
	}
}

// merger merges what all sources state. Nobody else writes the result, but merges may run side by side: who asks
// for what is known at this moment does not wait for the one that is under way.
type merger struct {
	*news
	self    *announcer // nil: nothing is announced
	native  *nativeBook
	subs    *subscriptions
	sources []*mailbox
	merged  prometheus.Counter

	mu     sync.Mutex
	begun  uint64 // how many merges have
	shown  uint64 // of these the one that result is of
	result roster.Result
	seen   chan struct{} // closed when result changes
}

// current is the newest result, and a channel that is closed when there is a newer one.
func (m *merger) current() (roster.Result, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.result, m.seen
}

// gathering is how long news of n entries are gathered before they are merged: the more there is to
// merge, the less often that is done, so that the work of a second has a bound.
func gathering(n int) time.Duration { return gatherLeast + time.Duration(n)*gatherEach }

// run merges when something was stated or a lease ends, no more often than gathering
// allows, and writes the cache.
func (m *merger) run(ctx context.Context, cache *diskCache) error {
	saved := time.Time{}
	var pace time.Duration // how long after the last write the cache is written; 0: not at all
	for {
		next, entries := m.merge(time.Now())
		if pace > 0 && time.Since(saved) >= pace {
			cache.save(time.Now())
			saved, pace = time.Now(), 0
		}
		if pace > 0 {
			next = sooner(next, saved.Add(pace))
		}
		changed, renewed := m.await(ctx, next)
		switch {
		case cache == nil:
		case changed:
			pace = saveInterval
		case renewed && pace == 0: // a cached lease that ends a little early does no harm
			pace = saveRenewalsInterval
		}
		if changed || entries > gatherFew { // the leases of many end one after the other
			run.Wait(ctx, gathering(entries))
		}
		if ctx.Err() != nil {
			cache.save(time.Now())
			return nil
		}
	}
}

// sooner is the earlier of two times; a may be zero, for none.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// stated is all that every source states.
func (m *merger) stated(now time.Time) []roster.Said {
	out := m.native.said(now)
	for _, sub := range m.subs.all() {
		if sub.older != nil {
			out = append(out, sub.older.said(now)...)
		}
	}
	for _, b := range m.sources {
		out = append(out, b.get()...)
	}
	return out
}

// merge makes a new result. It returns when the next lease ends, and how many entries there are.
func (m *merger) merge(now time.Time) (next time.Time, entries int) {
	turn := m.begin()
	said, next := roster.Expire(now, m.stated(now))
	m.merged.Add(float64(len(said)))
	me := roster.Self{Tier: roster.TierNative}
	if w, _ := m.self.current(); w.member != nil {
		me.Facts, me.Replaces = *w.member, w.id.before()
		me.Facts.ID = w.id.key.ID().String()
	}
	result := roster.Merge(now, me, said, roster.Rules{})
	m.mu.Lock()
	defer m.mu.Unlock()
	if turn < m.shown { // a later one has gathered all of this, and maybe more
		return next, len(said)
	}
	m.result, m.shown = result, turn
	close(m.seen)
	m.seen = make(chan struct{})
	return next, len(said)
}

// begin counts a merge, before it gathers anything.
func (m *merger) begin() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.begun++
	return m.begun
}

// stale counts the members that are past their lease.
func (m *merger) stale() (n int) {
	r, _ := m.current()
	for i := range r.Members {
		if r.Members[i].Stale {
			n++
		}
	}
	return n
}
