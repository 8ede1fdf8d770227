// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"weak"

	"github.com/tombolo-io/tombolo/internal/fault"
)

// Watcher follows one cluster. It holds no queue: it remembers up to which change
// it has seen, and finds the present state of what changed since. It is used by
// one goroutine.
type Watcher struct {
	b    *Board
	id   Cluster
	c    *cluster
	seen uint64
}

// Watch begins to follow a cluster, which need not have members. Close must follow.
func (b *Board) Watch(id Cluster) (*Watcher, error) {
	for {
		c, err := b.find(id, true)
		if err != nil {
			return nil, err
		}
		c.mu.Lock()
		if c.gone {
			c.mu.Unlock()
			continue
		}
		c.watchers++
		w := &Watcher{b: b, id: id, c: c, seen: c.seq}
		c.mu.Unlock()
		return w, nil
	}
}

// Close ends the watch.
func (w *Watcher) Close() {
	w.c.mu.Lock()
	w.c.watchers--
	w.c.mu.Unlock()
	w.b.forget(w.id)
}

// Snapshot is the whole cluster as bytes, rendered at most once for each state
// however many ask; Next goes on from there.
func (w *Watcher) Snapshot(render func([]Listing) [][]byte) *Rendered {
	c := w.c
	c.mu.RLock()
	r := c.rendered.Value()
	if r != nil && r.seq == c.seq {
		w.seen = r.seq
		c.mu.RUnlock()
		return r
	}
	c.mu.RUnlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.rendered.Value(); r != nil && r.seq == c.seq {
		w.seen = r.seq
		return r
	}
	r = &Rendered{seq: c.seq, Pieces: render(c.list())}
	c.rendered = weak.Make(r)
	w.seen = c.seq
	return r
}

// Next waits for changes and returns each member that changed since the last
// call once, as it is now; one that is gone has a lease that is not listed. A
// watcher that fell behind further than the log reaches gets a fault of code
// watch_lost and begins anew.
func (w *Watcher) Next(ctx context.Context) ([]Listing, error) {
	for {
		out, changed, err := w.since()
		if err != nil || len(out) > 0 {
			return out, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (w *Watcher) since() (out []Listing, changed <-chan struct{}, err error) {
	c := w.c
	c.mu.RLock()
	defer c.mu.RUnlock()
	missed := c.seq - w.seen
	if missed > uint64(len(c.log)) {
		return nil, nil, fault.New(fault.CodeWatchLost, "the watch is ended").
			Whyf("%d changes were missed, and %d are kept", missed, len(c.log)).Hint("watch again: the first answer is everything")
	}
	told := make(map[string]bool, missed)
	for _, id := range c.log[uint64(len(c.log))-missed:] {
		if !told[id] {
			told[id] = true
			out = append(out, Listing{id, c.members[id]})
		}
	}
	w.seen = c.seq
	return out, c.changed, nil
}
