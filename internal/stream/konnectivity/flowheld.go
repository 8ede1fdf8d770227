// SPDX-License-Identifier: Apache-2.0

package konnectivity

import "sync/atomic"

// held is what a packet that waits costs.
func (p *packet) held() int { return len(p.payload) + queueEntry }

// count counts bytes that came for the flow, or below 0 that are no longer held: for those who ask the flow, for its
// caller and for all flows of the server.
func (f *flow) count(n int) {
	f.unread.Add(int64(n))
	if t := f.tally.Load(); t != nil {
		t.Add(int64(n))
	}
	if f.link.budget != nil {
		f.link.budget.Add(int64(n))
	}
}

// taken frees a packet that was read or written.
func (f *flow) taken(p *packet) {
	f.count(-p.held())
	p.free()
}

// Held implements carrier.Holder. What is written waits in gRPC, for all flows of the link.
func (f *flow) Held() int64 { return f.unread.Load() }

// Unread implements carrier.Holder, with what packets cost beside their bytes: many of them are small.
func (f *flow) Unread() int64 { return f.unread.Load() }

// Tally implements carrier.Holder.
func (f *flow) Tally(n *atomic.Int64) {
	f.mu.Lock() // nothing comes meanwhile, and nothing is read yet
	defer f.mu.Unlock()
	n.Add(f.unread.Load())
	f.tally.Store(n)
}
