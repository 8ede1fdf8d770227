// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"weak"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// Watcher follows one cluster. It holds no queue: it remembers up to which change
// it has seen, and finds the present state of what changed since. It is used by
// one goroutine.
type Watcher struct {
	b    *Board
	id   Cluster
	c    *cluster
	seen uint64
	over bool
}

// Watch begins to follow a cluster. Without members the cluster does not count for limits. Close
// must follow.
func (b *Board) Watch(id Cluster) *Watcher {
	c := b.lock(id)
	defer c.mu.Unlock()
	c.watchers++
	return &Watcher{b: b, id: id, c: c, seen: c.seq}
}

// Close ends the watch. Twice is harmless.
func (w *Watcher) Close() {
	if w.over {
		return
	}
	w.over = true
	w.c.mu.Lock()
	w.c.watchers--
	if w.c.watchers == 0 {
		w.c.log = nil
	}
	idle := w.c.idle()
	w.c.mu.Unlock()
	if idle {
		w.b.forget(w.id)
	}
}

// Snapshot is the whole cluster as bytes, in the order of ids and with remembered removals (a
// watcher may know the member from before); Next continues from there. Each state is rendered
// at most once, however many ask for it, and changes continue meanwhile. In a large cluster it
// may be a few changes old, so that a crowd during churn shares one; the first Next brings the
// rest. Without room for another one, it may be as old as Next goes back. Done must follow.
func (w *Watcher) Snapshot(render func([]Listing) [][]byte, claim Claim) (*Rendered, error) {
	c := w.c
	few := func() uint64 { return uint64(min(len(c.log)/2, len(c.members)/discoverySnapshotShare)) }
	r, err := c.snapshot(few, render, claim)
	if err != nil {
		if r = c.shared(func() uint64 { return uint64(len(c.log)) }); r == nil || r.use(claim) != nil {
			return nil, err
		}
	}
	w.seen = r.seq
	return r, nil
}

// Rendered is the whole cluster as bytes, as it is now; nil where there is none. Done
// must follow.
func (b *Board) Rendered(id Cluster, render func([]Listing) [][]byte, claim Claim) (*Rendered, error) {
	c := b.find(id, false)
	if c == nil {
		return nil, nil
	}
	return c.snapshot(func() uint64 { return 0 }, render, claim)
}

// snapshot is a rendering that has missed at most so many changes.
func (c *cluster) snapshot(most func() uint64, render func([]Listing) [][]byte, claim Claim) (*Rendered, error) {
	if r := c.shared(most); r != nil {
		return r, r.use(claim)
	}
	c.drawing.Lock()
	defer c.drawing.Unlock()
	if r := c.shared(most); r != nil {
		return r, r.use(claim)
	}
	c.mu.RLock()
	all := c.all()
	r := &Rendered{seq: c.seq}
	c.mu.RUnlock()
	r.Pieces = render(inOrder(all))
	if err := r.use(claim); err != nil {
		return nil, err // and the last one stays, for who can do with it
	}
	c.mu.Lock()
	c.rendered = weak.Make(r)
	c.mu.Unlock()
	return r, nil
}

// shared is the last rendering, if it is still in use and missed at most so many
// changes; nil otherwise.
func (c *cluster) shared(most func() uint64) *Rendered {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if r := c.rendered.Value(); r != nil && c.seq-r.seq <= most() {
		return r
	}
	return nil
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

// since is what changed since the last call, in the order of changes, as far as it has
// not much more than discoveryDelta bytes; the next call brings the rest.
func (w *Watcher) since() (out []Listing, changed <-chan struct{}, err error) {
	c := w.c
	c.mu.RLock()
	defer c.mu.RUnlock()
	out, w.seen, err = c.afterLocked(w.seen)
	return out, c.changed, err
}

// afterLocked are the changes after one, and up to which they are. The lock is held.
func (c *cluster) afterLocked(seen uint64) (out []Listing, upTo uint64, err error) {
	missed := c.seq - seen
	if missed > uint64(len(c.log)) {
		return nil, seen, fault.New(fault.CodeWatchLost, "the watch is ended").
			Whyf("%d changes were missed, and %d are kept", missed, len(c.log)).
			Hint("watch again: the first answer is everything")
	}
	ids := c.log[uint64(len(c.log))-missed:]
	if len(ids) < 2 { // the common case: nothing, or what woke us
		for _, id := range ids {
			out = append(out, Listing{id, c.members[id].Lease})
		}
		return out, c.seq, nil
	}
	told, size := make(map[string]bool), 0
	for _, id := range ids {
		if !told[id] {
			if size > discoveryDelta {
				break
			}
			told[id] = true
			l := Listing{id, c.members[id].Lease}
			size += l.size()
			out = append(out, l)
		}
		seen++
	}
	return out, seen, nil
}

// delta is what changed, as messages that are bytes. Watchers that have seen the same
// share it, and it is forgotten when the last of them has sent it.
type delta struct {
	from, to, seq uint64 // the changes from one to another, at the time of a third
	messages      [][]byte
}

// changes is since as messages; nil where nothing has changed.
func (w *Watcher) changes(render func([]Listing) [][]byte) (d *delta, changed <-chan struct{}, err error) {
	c := w.c
	c.mu.RLock()
	changed = c.changed
	if d = c.delta.Value(); d != nil && d.from == w.seen && d.seq == c.seq {
		c.mu.RUnlock()
		w.seen = d.to
		return d, changed, nil
	}
	d = &delta{from: w.seen, seq: c.seq}
	all, to, err := c.afterLocked(w.seen)
	c.mu.RUnlock()
	w.seen = to
	if err != nil || len(all) == 0 {
		return nil, changed, err
	}
	d.to, d.messages = to, render(all)
	c.mu.Lock()
	c.delta = weak.Make(d)
	c.mu.Unlock()
	return d, changed, nil
}
