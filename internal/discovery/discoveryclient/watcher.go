// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
	"github.com/tombolo-io/tombolo/internal/discovery/seal"
)

// Result is what is known now, and a channel that is closed when there is more.
func (f *Client) Result() (roster.Result, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.result, f.seen
}

// Watcher tells one consumer what has happened since it asked last. A slow one is
// told less often and misses nothing that lasts; nothing is kept for it.
type Watcher struct {
	f    *Client
	last roster.Result
	seen <-chan struct{}
}

// Watch begins with nothing: the first events are all members that are known.
func (f *Client) Watch() *Watcher { return &Watcher{f: f} }

// Now gives what has happened until now without waiting: at first the members that
// are known, if there are any.
func (w *Watcher) Now() []roster.Event {
	result, seen := w.f.Result()
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

// Status is how every source does.
func (f *Client) Status() []Status {
	now := time.Now()
	var out []Status
	for _, c := range f.subscriptions() {
		s := c.status.get()
		if s.Members = c.native.count(now, c.service.Name); s.Protocol == ProtocolSidero && c.older != nil {
			s.Members = c.older.count(now)
		}
		out = append(out, s)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, b := range f.boxes {
		if r, ok := b.source.(Reporter); ok {
			out = append(out, r.Status()...)
		}
	}
	if shared := f.self.sharedKey(now); shared != nil {
		out = append(out, Status{Source: keyFile, Kind: KindAnnouncement, State: StateBroken, Code: shared.Code, Reason: shared.Explain()})
	}
	if f.cache.Kind != "" {
		out = append(out, f.cache)
	}
	return out
}

// Warnings are those of sources that nothing but an operator ends: what a cluster lacks to be
// safe, and a service that speaks another protocol.
func (f *Client) Warnings() (out []string) {
	for _, s := range f.Status() {
		switch {
		case s.Warning != "":
			out = append(out, s.Source+": "+s.Warning)
		case s.Kind == KindService && s.Code == fault.CodeVersion && !slices.Contains(out, s.Reason): // for each secret the same
			out = append(out, s.Reason)
		}
	}
	return out
}

// Observed are the addresses at which services see this node.
func (f *Client) Observed() []netip.Addr {
	var out []netip.Addr
	for _, c := range f.subscriptions() {
		if s := c.status.get(); s.State == StateAttending && s.Observed.IsValid() {
			out = append(out, s.Observed.Addr())
		}
	}
	return out
}

func (f *Client) attending() (n int) {
	for _, c := range f.subscriptions() {
		if c.status.get().State == StateAttending {
			n++
		}
	}
	return n
}

func (f *Client) stale() (n int) {
	r, _ := f.Result()
	for i := range r.Members {
		if r.Members[i].Stale {
			n++
		}
	}
	return n
}

// Settled reports whether every source has told all it knows, and those that have not.
func (f *Client) Settled() (waiting []string) {
	for _, s := range f.Status() {
		if s.Kind != KindCache && s.Kind != KindAnnouncement && !s.Settled {
			waiting = append(waiting, s.Source)
		}
	}
	return waiting
}

// AwaitSettled waits until every source has told all it knows, and names those that
// have not when the time is over.
func (f *Client) AwaitSettled(ctx context.Context, most time.Duration) []string {
	end := time.NewTimer(most)
	defer end.Stop()
	for {
		waiting := f.Settled()
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

// Version is that of what this node announces now; 0 for nothing.
func (f *Client) Version() uint64 {
	w, _ := f.self.current()
	if w.member == nil {
		return 0
	}
	return w.version
}

// Lease is how long others know this node after they have heard it last.
func (f *Client) Lease() time.Duration { return f.cfg.Lease }

// Merged is what is known at this moment, without waiting for what is gathered.
func (f *Client) Merged() roster.Result {
	f.merge(time.Now())
	r, _ := f.Result()
	return r
}

// Ready reports whether some source tells of members, or none is configured.
func (f *Client) Ready() bool {
	wanted := 0
	for _, s := range f.Status() {
		switch {
		case s.Kind == KindCache, s.Kind == KindAnnouncement:
			continue // it tells of nobody who is there now
		case s.State == StateAttending:
			return true
		}
		wanted++
	}
	return wanted == 0
}

// Clusters are the native ids of this node's clusters, the newest secret's first.
func (f *Client) Clusters() []seal.ClusterID { return Config{keys: f.keys()}.Clusters() }
