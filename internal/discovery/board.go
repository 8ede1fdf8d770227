// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"maps"
	"math"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/tombolo-io/tombolo/internal/discovery/roster"
)

// Board is what is known of all clusters, in memory. It is safe for use by many.
type Board struct {
	bounds   atomic.Pointer[Bounds]
	begin    time.Time    // of the board's clock: the wall clock may jump
	mu       sync.RWMutex // of the map alone
	clusters map[Cluster]*cluster
	members  atomic.Int64
	inUse    atomic.Int64 // clusters that have a member
	bytes    atomic.Int64
	shares   shares
	edition  atomic.Uint64 // counts every change, renewals too: of two that are equal nothing happened between
}

// NewBoard makes an empty board.
func NewBoard(b Bounds) *Board {
	board := &Board{begin: time.Now(), clusters: make(map[Cluster]*cluster), shares: shares{of: make(map[area]*share)}}
	board.Bound(b)
	return board
}

// Bound changes how much the board takes. What it has stays.
func (b *Board) Bound(to Bounds) { b.bounds.Store(&to) }

// cluster is the members of one, and the log of what changed last.
type cluster struct {
	mu       sync.RWMutex
	members  map[string]held
	weight   int64  // of itself
	by       *share // of the party that began it; nil: unknown
	listed   int
	next     atomic.Int64 // nanoseconds of the board's clock before which nothing expires; never: nothing ever does
	seq      uint64       // of the last change
	log      []string     // ids of the last changes, without a gap; log[i] is change seq-len(log)+1+i
	changed  chan struct{}
	drawing  sync.Mutex // taken before mu: one renders, while changes continue
	rendered weak.Pointer[Rendered]
	delta    weak.Pointer[delta] // the last that was rendered
	gone     bool                // no longer in the board's map: look the cluster up again
	watchers int
}

// Rendered is a snapshot of a cluster as bytes, which all callers that ask at the same
// time share, and which is forgotten when the last of them has read it.
type Rendered struct {
	seq    uint64
	Pieces [][]byte

	mu      sync.Mutex
	users   int
	release func() // of what it counts; nil without users
}

// Claim counts bytes with whom they are rendered for, until release, or refuses them; nil
// counts nothing.
type Claim func(bytes int) (release func(), err error)

// use counts a rendering while it is in use; Done must follow.
func (r *Rendered) use(claim Claim) (err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.users == 0 && claim != nil {
		if r.release, err = claim(r.size()); err != nil {
			return err
		}
	}
	r.users++
	return nil
}

// Done ends a use.
func (r *Rendered) Done() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.users--; r.users == 0 && r.release != nil {
		r.release()
		r.release = nil
	}
}

func (r *Rendered) size() (n int) {
	for _, piece := range r.Pieces {
		n += len(piece)
	}
	return n
}

const never = math.MaxInt64

// find returns a cluster, made if there is none and create is set; nil otherwise.
func (b *Board) find(id Cluster, create bool) *cluster {
	b.mu.RLock()
	c := b.clusters[id]
	b.mu.RUnlock()
	if c != nil || !create {
		return c
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if c = b.clusters[id]; c == nil {
		c = newCluster(id)
		b.clusters[id] = c
	}
	return c
}

// lock is find for a change, with the cluster's lock.
func (b *Board) lock(id Cluster) *cluster {
	for {
		c := b.find(id, true)
		c.mu.Lock()
		if !c.gone {
			return c
		}
		c.mu.Unlock()
	}
}

func newCluster(id Cluster) *cluster {
	c := &cluster{members: make(map[string]held), weight: int64(costCluster + len(id.ID)), changed: make(chan struct{})}
	c.next.Store(never)
	return c
}

// Apply changes one member by a function of what it is, under the cluster's
// lock: fn must be quick. An error of fn changes nothing. What grows counts with
// the address that it comes from.
func (b *Board) Apply(p Place, from netip.Addr, fn func(was roster.Lease) (roster.Lease, roster.Change, error)) error {
	c := b.lock(p.Cluster)
	err := c.apply(b, p.Member, party(from), fn)
	idle := c.idle() // it may have been made for this, or this was its last member
	c.mu.Unlock()
	if idle {
		b.forget(p.Cluster)
	}
	return err
}

func (c *cluster) apply(b *Board, member string, from netip.Addr,
	fn func(roster.Lease) (roster.Lease, roster.Change, error)) error {
	was := c.members[member]
	now, change, err := fn(was.Lease)
	if err != nil {
		return err
	}
	if err := c.become(b, step{member, from, was, now}, *b.bounds.Load()); err != nil {
		return err
	}
	if change == roster.Changed || change == roster.Gone {
		c.note(member)
		c.wake()
	}
	return nil
}

// put writes a member down; its bytes have been counted, and so has the cluster
// that it begins.
func (c *cluster) put(b *Board, member string, was, now held) {
	if now.Exists() {
		c.members[member] = now
		c.next.Store(min(c.next.Load(), b.clock(now.Next())))
	} else if delete(c.members, member); was.Exists() && len(c.members) == 0 {
		b.inUse.Add(-1)
		b.bytes.Add(-c.weight)
		// What its first member brought is in the share of who began it, too.
		b.shares.drop(c.by, c.weight)
		c.by = nil
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
	if len(c.log) >= min(discoveryLog, max(discoveryLogFew, discoveryLogTimes*len(c.members))) {
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

// Expire takes away what is over at a time, and says how many members are gone.
func (b *Board) Expire(now time.Time) (gone int) { return b.sweep(now, roster.Lease.Expire) }

// sweep is Expire by a rule.
func (b *Board) sweep(now time.Time, rule func(roster.Lease, time.Time) (roster.Lease, roster.Change)) (gone int) {
	for id, c := range b.live {
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

func (c *cluster) expire(b *Board, now time.Time,
	rule func(roster.Lease, time.Time) (roster.Lease, roster.Change)) (gone int, idle bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	next, told := int64(never), false
	for id, was := range c.members {
		if at := was.Next(); now.Before(at) {
			next = min(next, b.clock(at))
			continue
		}
		is, change := rule(was.Lease, now)
		c.become(b, step{id, was.owner(), was, is}, Bounds{}) // which refuses nothing
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

// forget drops a cluster without members and watchers.
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
	c := b.find(id, false)
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
			out = append(out, Listing{id, l.Lease})
		}
	}
	return out
}

// all is list with the removals, for who may have the member from before.
func (c *cluster) all() []Listing {
	out := make([]Listing, 0, len(c.members))
	for id, l := range c.members {
		out = append(out, Listing{id, l.Lease})
	}
	return out
}

func inOrder(all []Listing) []Listing {
	slices.SortFunc(all, func(a, b Listing) int { return strings.Compare(a.ID, b.ID) })
	return all
}

// Get is one member.
func (b *Board) Get(p Place) roster.Lease {
	c := b.find(p.Cluster, false)
	if c == nil {
		return roster.Lease{}
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.members[p.Member].Lease
}

// live yields the clusters of this moment, as far as they are still there when their
// turn comes. No lock is held meanwhile.
func (b *Board) live(yield func(Cluster, *cluster) bool) {
	b.mu.RLock()
	all := slices.Collect(maps.Keys(b.clusters))
	b.mu.RUnlock()
	for _, id := range all {
		if c := b.find(id, false); c != nil && !yield(id, c) {
			return
		}
	}
}

// Counts are how much is on the board: clusters with a member, removed ones included,
// members that are listed, and the memory of all.
func (b *Board) Counts() (clusters, members int, bytes int64) {
	return int(b.inUse.Load()), int(b.members.Load()), b.bytes.Load() + b.shares.memory.Load()
}

// All calls fn for each member, removed ones included, with the party in whose share
// it is, while the board lives on: each cluster is as it was at one moment.
func (b *Board) All(fn func(Place, roster.Lease, netip.Addr)) {
	for id, c := range b.live {
		c.mu.RLock()
		members := maps.Clone(c.members)
		c.mu.RUnlock()
		for _, m := range slices.Sorted(maps.Keys(members)) {
			fn(Place{id, m}, members[m].Lease, members[m].owner())
		}
	}
}
