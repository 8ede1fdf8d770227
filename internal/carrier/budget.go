// SPDX-License-Identifier: Apache-2.0

package carrier

import "sync/atomic"

// Budget bounds the bytes that came and were not read yet, over the sessions
// that share it: those of one cluster at a hub, all of a process at an agent. It
// never takes back what a stream was granted; it makes the first windows of new
// streams smaller and then refuses them.
type Budget struct {
	most   int64
	unread atomic.Int64
}

// NewBudget makes a budget of so many unread bytes.
func NewBudget(most int64) *Budget { return &Budget{most: most} }

// Unread is the bytes that nobody has read yet.
func (b *Budget) Unread() int64 { return b.unread.Load() }
