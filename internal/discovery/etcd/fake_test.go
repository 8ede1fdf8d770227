// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/run"
)

// fake is an etcd in memory, whose time may be simulated. It is written from what
// etcd documents: revisions, leases, compare-and-swap, watches.
type fake struct {
	mu        sync.Mutex
	state     fakeState
	granted   int64
	compacted int64
	asked     int // for progress
	changed   chan struct{}
	refuses   bool          // connections
	hangs     bool          // takes connections, and says nothing
	slow      time.Duration // for each question about a lease
	pages     int
	after     func(key string) error // a Swap that was done, whose answer may be lost
}

type fakeState struct {
	head
	keys   map[string]pair
	leases map[int64]fakeLease
	log    []event
}

type fakeLease struct {
	seconds int64
	until   time.Time
}

func newFake() *fake {
	return &fake{state: fakeState{head: head{cluster: 7, rev: 1}, keys: map[string]pair{}, leases: map[int64]fakeLease{}}, changed: make(chan struct{})}
}

var errRefused = errors.New("connection refused")

// begin takes the lock, unless etcd is not there; end follows.
func (f *fake) begin(ctx context.Context) error {
	f.mu.Lock()
	hangs := f.hangs
	if f.refuses || hangs {
		f.mu.Unlock()
		if hangs {
			<-ctx.Done()
			return ctx.Err()
		}
		return errRefused
	}
	if err := ctx.Err(); err != nil {
		f.mu.Unlock()
		return err
	}
	f.expire()
	return nil
}

// expire ends leases. The lock is held.
func (f *fake) expire() {
	var over []int64
	for id, l := range f.state.leases {
		if !time.Now().Before(l.until) {
			over = append(over, id)
		}
	}
	slices.Sort(over)
	for _, id := range over {
		f.end(id)
	}
}

func (f *fake) end(lease int64) {
	delete(f.state.leases, lease)
	for k, p := range f.state.keys { // one, or none
		if p.lease == lease {
			f.state.rev++
			f.set(k, nil, 0)
		}
	}
}

// set writes a key at the present revision.
func (f *fake) set(key string, value []byte, lease int64) {
	made := f.state.keys[key].made
	if made == 0 {
		made = f.state.rev
	}
	p := pair{key: key, value: value, rev: f.state.rev, made: made, lease: lease}
	if value == nil {
		delete(f.state.keys, key)
	} else {
		f.state.keys[key] = p
	}
	f.state.log = append(f.state.log, event{p, value == nil})
	f.wake()
}

func (f *fake) wake() {
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *fake) Range(ctx context.Context, from, to string, rev int64, most int64) (page, error) {
	if err := f.begin(ctx); err != nil {
		return page{}, err
	}
	defer f.mu.Unlock()
	f.pages++
	out := page{head: f.state.head}
	for _, k := range slices.Sorted(maps.Keys(f.state.keys)) {
		if k < from || k >= to {
			continue
		}
		if out.more = int64(len(out.pairs)) == most; out.more {
			break
		}
		out.pairs = append(out.pairs, f.state.keys[k])
	}
	return out, nil
}

func (f *fake) Swap(ctx context.Context, key string, was int64, value []byte, lease int64) (swapped, error) {
	if err := f.begin(ctx); err != nil {
		return swapped{}, err
	}
	defer f.mu.Unlock()
	is, there := f.state.keys[key]
	if is.rev != was {
		if !there {
			return swapped{head: f.state.head}, nil
		}
		return swapped{head: f.state.head, is: &is}, nil
	}
	if _, granted := f.state.leases[lease]; value != nil && lease != 0 && !granted {
		return swapped{}, errNoLease
	}
	if value != nil || there {
		f.state.rev++
		f.set(key, value, lease)
	}
	if f.after != nil {
		if err := f.after(key); err != nil {
			return swapped{}, err
		}
	}
	return swapped{head: f.state.head, done: true}, nil
}

func (f *fake) Grant(ctx context.Context, seconds int64) (int64, error) {
	if err := f.begin(ctx); err != nil {
		return 0, err
	}
	defer f.mu.Unlock()
	f.granted++
	f.lease(f.granted, seconds)
	return f.granted, nil
}

func (f *fake) lease(id, seconds int64) {
	d := time.Duration(seconds) * time.Second
	f.state.leases[id] = fakeLease{seconds, time.Now().Add(d)}
	time.AfterFunc(d, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if !f.refuses && !f.hangs {
			f.expire()
		}
	})
}

func (f *fake) Renew(ctx context.Context, id int64) error {
	if err := f.begin(ctx); err != nil {
		return err
	}
	defer f.mu.Unlock()
	l, there := f.state.leases[id]
	if !there {
		return errNoLease
	}
	f.lease(id, l.seconds)
	return nil
}

func (f *fake) Revoke(ctx context.Context, id int64) error {
	if err := f.begin(ctx); err != nil {
		return err
	}
	defer f.mu.Unlock()
	if _, there := f.state.leases[id]; !there {
		return errNoLease
	}
	f.end(id)
	return nil
}

func (f *fake) Left(ctx context.Context, id int64) (time.Duration, error) {
	if f.slow > 0 {
		run.Wait(ctx, f.slow)
	}
	if err := f.begin(ctx); err != nil {
		return 0, err
	}
	defer f.mu.Unlock()
	l, there := f.state.leases[id]
	if !there {
		return -time.Second, nil
	}
	return time.Until(l.until).Truncate(time.Second), nil
}

func (f *fake) Watch(ctx context.Context, from, to string, rev int64, take func(news) error) error {
	asked, next := 0, rev
	for first := true; ; first = false {
		f.mu.Lock()
		if f.refuses || rev < f.compacted && first {
			err := errCompacted
			if f.refuses {
				err = errRefused
			}
			f.mu.Unlock()
			return err
		}
		n := news{head: f.state.head}
		if first {
			asked = f.asked
		}
		if !f.hangs {
			at, _ := slices.BinarySearchFunc(f.state.log, next, func(e event, rev int64) int { return cmp.Compare(e.rev, rev) })
			for _, e := range f.state.log[at:] {
				if e.key >= from && e.key < to {
					n.events = append(n.events, e)
				}
			}
			next = max(next, f.state.rev+1)
			n.alive = len(n.events) == 0 && f.asked > asked && f.state.rev >= rev
			asked = f.asked
		}
		changed := f.changed
		f.mu.Unlock()
		if len(n.events) > 0 || n.alive {
			if err := take(n); err != nil {
				return err
			}
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (f *fake) Progress(ctx context.Context) error {
	if err := f.begin(ctx); err != nil {
		return err
	}
	defer f.mu.Unlock()
	f.asked++
	f.wake()
	return nil
}

func (f *fake) Close() error { return nil }

// change does something to etcd behind everybody's back.
func (f *fake) change(fn func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fn()
	f.wake()
}

// backup is a copy of everything, for restore.
func (f *fake) backup() fakeState {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := f.state
	out.keys, out.leases, out.log = maps.Clone(out.keys), maps.Clone(out.leases), slices.Clone(out.log)
	return out
}

// restart is what an etcd does to leases that begins anew: all get their time again.
func (f *fake) restart() {
	f.change(func() {
		f.refuses, f.hangs = false, false
		for id, l := range f.state.leases {
			f.lease(id, l.seconds)
		}
	})
}
