// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"sync"
	"sync/atomic"
)

// Budget is the memory that sessions share: those of one cluster at a hub, all
// of a process at an agent. It bounds the bytes that came and were not read yet,
// and owns the buffers. It never takes back what a stream was granted: above
// half it makes the first windows of new streams smaller, and refuses them when
// it is used up.
type Budget struct {
	most    atomic.Int64
	unread  atomic.Int64
	pools   chunkPools
	batches *sync.Pool // of *batch, and of all budgets of a family
}

// NewBudget makes a budget of so many unread bytes.
func NewBudget(most int64) *Budget { return newBudget(most, &sync.Pool{}) }

func newBudget(most int64, batches *sync.Pool) *Budget {
	b := &Budget{batches: batches}
	b.most.Store(most)
	return b
}

// Another makes a budget of its own that recycles the same buffers for what is
// sent. One of these is 116 KiB, and an idle session needs one for microseconds
// in each 10 s: thousands of budgets with one each would hold a gigabyte.
func (b *Budget) Another(most int64) *Budget { return newBudget(most, b.batches) }

// Bound changes how many unread bytes there may be. What streams were granted
// stays; windows follow as they are read.
func (b *Budget) Bound(most int64) { b.most.Store(most) }

// Add counts bytes that came by another way than a session, or below 0 that were read.
func (b *Budget) Add(n int64) { b.unread.Add(n) }

// Unread is the bytes that nobody has read yet.
func (b *Budget) Unread() int64 { return b.unread.Load() }

// Full says that no more may come: streams that are opened now bring more.
func (b *Budget) Full() bool { return b.unread.Load() >= b.most.Load() }

// first is the first window of a new stream when used of most are taken, in
// streams or unread bytes: 0 refuses it.
func first(used, most int64) int64 {
	switch {
	case used >= most:
		return 0
	case used*4 > most*3:
		return 16 << 10
	case used*2 > most:
		return 64 << 10
	}
	return firstWindow
}
