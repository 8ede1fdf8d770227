// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import (
	"context"
	"slices"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
)

// Result is what is known now, and a channel that is closed when there is more.
func (c *Client) Result() (roster.Result, <-chan struct{}) {
	return c.members.current()
}

// Watcher gives one consumer the events since its last call. A slow consumer gets fewer, and
// misses nothing that lasts; nothing is queued for it.
type Watcher struct {
	c    *Client
	last roster.Result
	seen <-chan struct{}
}

// Watch begins with nothing: the first events are all members that are known.
func (c *Client) Watch() *Watcher { return &Watcher{c: c} }

// Now gives what has happened until now without waiting: at first the members that
// are known, if there are any.
func (w *Watcher) Now() []roster.Event {
	result, seen := w.c.Result()
	events := roster.Events(w.last, result)
	w.last, w.seen = result, seen
	return events
}

// Next waits until something has happened.
func (w *Watcher) Next(ctx context.Context) ([]roster.Event, roster.Result, error) {
	for {
		if w.seen != nil {
			select {
			case <-w.seen:
			case <-ctx.Done():
				return nil, w.last, ctx.Err()
			}
		}
		if events := w.Now(); len(events) > 0 {
			return events, w.last, nil
		}
	}
}

// Status is the state of every source.
func (c *Client) Status() []Status {
	now := time.Now()
	var out []Status
	for _, sub := range c.subs.all() {
		s := sub.status.get()
		if s.Members = sub.native.count(now, sub.service.Name); s.Protocol == ProtocolSidero && sub.older != nil {
			s.Members = sub.older.count(now)
		}
		out = append(out, s)
	}
	for _, b := range c.members.sources {
		if r, ok := b.source.(Reporter); ok {
			out = append(out, r.Status()...)
		}
	}
	if shared := c.self.sharedKey(now); shared != nil {
		out = append(out, Status{Source: keyFile, Kind: KindAnnouncement, State: StateBroken, Code: shared.Code,
			Reason: shared.Explain()})
	}
	if c.cache != nil {
		out = append(out, c.cache.get())
	}
	return out
}

// Warnings are conditions of sources that only an operator can end: what a cluster lacks to be
// safe, and a service that speaks another protocol.
func (c *Client) Warnings() (out []string) {
	for _, s := range c.Status() {
		switch {
		case s.Warning != "":
			out = append(out, s.Source+": "+s.Warning)
		// it is the same for each secret
		case s.Kind == KindService && s.Code == fault.CodeVersion && !slices.Contains(out, s.Reason):
			out = append(out, s.Reason)
		}
	}
	return out
}

// Settled names the sources that have not reported everything they know.
func (c *Client) Settled() (waiting []string) {
	for _, s := range c.Status() {
		if s.Kind != KindCache && s.Kind != KindAnnouncement && !s.Settled {
			waiting = append(waiting, s.Source)
		}
	}
	return waiting
}

// AwaitSettled waits until every source has reported everything it knows, and names those that
// have not when the time is up.
func (c *Client) AwaitSettled(ctx context.Context, most time.Duration) []string {
	end := time.NewTimer(most)
	defer end.Stop()
	for {
		waiting := c.Settled()
		if len(waiting) == 0 {
			return nil
		}
		look := time.NewTimer(settledPoll)
		select {
		case <-look.C:
		case <-end.C:
			look.Stop()
			return waiting
		case <-ctx.Done():
			look.Stop()
			return waiting
		}
	}
}

// Merged is what is known at this moment, without waiting for what is gathered.
func (c *Client) Merged() roster.Result {
	c.members.merge(time.Now())
	r, _ := c.Result()
	return r
}

// Ready reports whether some source reports members, or none is configured.
func (c *Client) Ready() bool {
	wanted := 0
	for _, s := range c.Status() {
		switch {
		case s.Kind == KindCache, s.Kind == KindAnnouncement:
			continue // it does not report present members
		case s.State == StateAttending:
			return true
		}
		wanted++
	}
	return wanted == 0
}
