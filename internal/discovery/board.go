// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/tombolo-io/tombolo/internal/fault"
	"github.com/tombolo-io/tombolo/internal/limit"
	"github.com/tombolo-io/tombolo/internal/roster"
)

// Board is what is known of all clusters, in memory. It is safe for use by many.
type Board struct {
	bounds   atomic.Pointer[Bounds]
	begin    time.Time    // of the board's clock: the wall clock may jump
	mu       sync.RWMutex // of the map alone
	clusters map[Cluster]*cluster
	members  atomic.Int64
	bytes    atomic.Int64
	edition  atomic.Uint64 // counts every change, renewals too: of two that are equal nothing happened between
}

// Bounds are how much a board takes. The zero value of a field is no bound.
type Bounds struct {
	Clusters  int
	Members   int   // of one cluster
	Endpoints int   // of one member
	Bytes     int64 // of everything that members sent
}

// NewBoard makes an empty board.
func NewBoard(b Bounds) *Board {
	board := &Board{begin: time.Now(), clusters: make(map[Cluster]*cluster)}
	board.Bound(b)
	return board
}

// Bound changes how much the board takes. What it has stays.
func (b *Board) Bound(to Bounds) { b.bounds.Store(&to) }

// cluster is the members of one, and the log of what changed last.
type cluster struct {
	mu       sync.RWMutex
	members  map[string]roster.Lease
	listed   int
	next     atomic.Int64 // nanoseconds of the board's clock before which nothing expires; never: nothing ever does
	seq      uint64       // of the last change
	log      []string     // ids of the last changes, without a gap; log[i] is change seq-len(log)+1+i
	changed  chan struct{}
	drawing  sync.Mutex // taken before mu: one renders, and changes go on meanwhile
	rendered weak.Pointer[Rendered]
	gone     bool // no longer in the board's map: look the cluster up again
	watchers int
}

// Rendered is a snapshot of a cluster as bytes, which all watchers that ask at
// the same time share, and which is forgotten when the last of them has it.
type Rendered struct {
	seq    uint64
	Pieces [][]byte
}

const never = math.MaxInt64

// find returns a cluster, made if there is none and create is set; nil otherwise.
func (b *Board) find(id Cluster, create bool) (*cluster, error) {
	b.mu.RLock()
	c := b.clusters[id]
	b.mu.RUnlock()
	if c != nil || !create {
		return c, nil
	}
	return b.make(id, b.bounds.Load().Clusters)
}

// make makes a cluster, if there are fewer than a bound; 0 is none.
func (b *Board) make(id Cluster, bound int) (*cluster, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c := b.clusters[id]; c != nil {
		return c, nil
	}
	if err := crowded(len(b.clusters), bound); err != nil {
		return nil, err
	}
	c := newCluster()
	b.clusters[id] = c
	return c, nil
}

// crowded is the refusal of a cluster more; nil where there is room.
func crowded(n, bound int) error {
	if bound <= 0 || n < bound {
		return nil
	}
	return fault.New(fault.CodeLimit, "the cluster is not taken").Whyf("the service has %d clusters, which is its bound", n).
		Hint("raise limits.clusters of the service, or use another service")
}

func newCluster() *cluster {
	c := &cluster{members: make(map[string]roster.Lease), changed: make(chan struct{})}
	c.next.Store(never)
	return c
}

// Apply changes one member by a function of what it is, under the cluster's
// lock: fn must be quick. An error of fn changes nothing.
func (b *Board) Apply(p Place, fn func(was roster.Lease) (roster.Lease, roster.Change, error)) error {
	for {
		c, err := b.find(p.Cluster, true)
		if err != nil {
			return err
		}
		c.mu.Lock()
		if c.gone {
			c.mu.Unlock()
			continue
		}
		err = c.apply(b, p.Member, fn)
		idle := c.idle() // it may have been made for this, or this was its last member
		c.mu.Unlock()
		if idle {
			b.forget(p.Cluster)
		}
		return err
	}
}

func (c *cluster) apply(b *Board, member string, fn func(roster.Lease) (roster.Lease, roster.Change, error)) error {
	was := c.members[member]
	now, change, err := fn(was)
	if err != nil {
		return err
	}
	if err := b.admit(c, member, was, now); err != nil {
		return err
	}
	c.put(b, member, was, now)
	if change == roster.Changed || change == roster.Gone {
		c.note(member)
		c.wake()
	}
	return nil
}

// admit looks at the bounds, and takes the bytes: of many at once no more get in
// than fit.
func (b *Board) admit(c *cluster, member string, was, now roster.Lease) error {
	if err := b.fits(c, was, now); err != nil {
		return err
	}
	bounds, grown := b.bounds.Load(), weight(member, now)-weight(member, was)
	if all := b.bytes.Add(grown); bounds.Bytes > 0 && grown > 0 && all > bounds.Bytes {
		b.bytes.Add(-grown)
		return full("bytes of members", all-grown, "bytes")
	}
	return nil
}

func full(what string, n int64, key string) error {
	return fault.New(fault.CodeLimit, "the member is not taken").Whyf("there are %d %s, which is the bound", n, what).
		Hint("raise limits.%s of the service", key)
}

// fits looks at the bounds that are of one cluster or member.
func (b *Board) fits(c *cluster, was, now roster.Lease) error {
	switch {
	case b.bounds.Load().Members > 0 && !was.Exists() && now.Exists() && len(c.members) >= b.bounds.Load().Members:
		return full("members in the cluster", int64(len(c.members)), "members")
	case b.bounds.Load().Endpoints > 0 && len(now.Endpoints) > b.bounds.Load().Endpoints && len(now.Endpoints) > len(was.Endpoints):
		return full("endpoints of the member", int64(len(was.Endpoints)), "endpoints")
	}
	return nil
}

// put writes a member down; its bytes have been counted.
func (c *cluster) put(b *Board, member string, was, now roster.Lease) {
	if now.Exists() {
		c.members[member] = now
		c.next.Store(min(c.next.Load(), b.clock(now.Next())))
	} else {
		delete(c.members, member)
	}
	listed := count(now.Listed()) - count(was.Listed())
	c.listed += listed
	b.members.Add(int64(listed))
	b.edition.Add(1)
}

// clock is a time on the board's own clock.
func (b *Board) clock(t time.Time) int64 { return int64(t.Sub(b.begin)) }

// note writes a change into the log; wake follows. The log is kept while there is
// a watcher who may ask for it, and is as long as it is likelier that a watcher
// catches up than that it had better begin anew.
func (c *cluster) note(member string) {
	c.seq++
	if c.watchers == 0 {
		c.log = nil
		return
	}
	if len(c.log) >= min(limit.DiscoveryLog, max(limit.DiscoveryLogFew, limit.DiscoveryLogTimes*len(c.members))) {
		c.log = slices.Delete(c.log, 0, len(c.log)/2)
	}
	c.log = append(c.log, member)
}

// wake wakes the watchers.
func (c *cluster) wake() {
	if c.watchers > 0 {
		close(c.changed)
		c.changed = make(chan struct{})
	}
}

// idle reports whether the cluster is one to forget.
func (c *cluster) idle() bool { return len(c.members) == 0 && c.watchers == 0 }

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}

// weight is the bytes that a member sent.
func weight(member string, l roster.Lease) (n int64) {
	if !l.Exists() {
		return 0
	}
	n = int64(len(member) + len(l.Data))
	for _, e := range l.Endpoints {
		n += int64(len(e.Blob))
	}
	return n
}

// Expire takes away what is over at a time, and says how many members are gone.
func (b *Board) Expire(now time.Time) (gone int) { return b.sweep(now, roster.Lease.Expire) }

// sweep is Expire by a rule.
func (b *Board) sweep(now time.Time, rule func(roster.Lease, time.Time) (roster.Lease, roster.Change)) (gone int) {
	b.mu.RLock()
	all := slices.Collect(maps.Keys(b.clusters))
	b.mu.RUnlock()
	for _, id := range all {
		c, _ := b.find(id, false)
		if c == nil {
			continue
		}
		if c.next.Load() > int64(now.Sub(b.begin)) {
			continue
		}
		n, idle := c.expire(b, now, rule)
		gone += n
		if idle {
			b.forget(id)
		}
	}
	return gone
}

func (c *cluster) expire(b *Board, now time.Time, rule func(roster.Lease, time.Time) (roster.Lease, roster.Change)) (gone int, idle bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	next, told := int64(never), false
	for id, was := range c.members {
		if at := was.Next(); now.Before(at) {
			next = min(next, b.clock(at))
			continue
		}
		is, change := rule(was, now)
		b.bytes.Add(weight(id, is) - weight(id, was))
		c.put(b, id, was, is)
		if is.Exists() {
			next = min(next, b.clock(is.Next()))
		}
		if change == roster.Changed || change == roster.Gone {
			c.note(id)
			told = true
		}
		gone += count(change == roster.Gone)
	}
	c.next.Store(next)
	if told {
		c.wake() // once: it was one moment
	}
	return gone, c.idle()
}

// forget drops a cluster that is empty and that nobody watches.
func (b *Board) forget(id Cluster) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.clusters[id]
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.idle() {
		c.gone = true
		delete(b.clusters, id)
	}
}

// List is the members of a cluster, in the order of their ids.
func (b *Board) List(id Cluster) []Listing {
	c, _ := b.find(id, false)
	if c == nil {
		return nil
	}
	c.mu.RLock()
	out := c.list()
	c.mu.RUnlock()
	return inOrder(out)
}

func (c *cluster) list() []Listing {
	out := make([]Listing, 0, c.listed)
	for id, l := range c.members {
		if l.Listed() {
			out = append(out, Listing{id, l})
		}
	}
	return out
}

// all is list with the removals, for who may have the member from before.
func (c *cluster) all() []Listing {
	out := make([]Listing, 0, len(c.members))
	for id, l := range c.members {
		out = append(out, Listing{id, l})
	}
	return out
}

func inOrder(all []Listing) []Listing {
	slices.SortFunc(all, func(a, b Listing) int { return strings.Compare(a.ID, b.ID) })
	return all
}

// Get is one member.
func (b *Board) Get(p Place) roster.Lease {
	c, _ := b.find(p.Cluster, false)
	if c == nil {
		return roster.Lease{}
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.members[p.Member]
}

// Counts are how much is on the board.
func (b *Board) Counts() (clusters, members int, bytes int64) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return len(b.clusters), int(b.members.Load()), b.bytes.Load()
}

// All calls fn for each member, removed ones included, while the board lives on:
// each cluster is as it was at one moment.
func (b *Board) All(fn func(Place, roster.Lease)) {
	b.mu.RLock()
	all := slices.Collect(maps.Keys(b.clusters))
	b.mu.RUnlock()
	for _, id := range all {
		c, _ := b.find(id, false)
		if c == nil {
			continue
		}
		c.mu.RLock()
		members := maps.Clone(c.members)
		c.mu.RUnlock()
		for _, m := range slices.Sorted(maps.Keys(members)) {
			fn(Place{id, m}, members[m])
		}
	}
}
