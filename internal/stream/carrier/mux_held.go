// SPDX-License-Identifier: Apache-2.0

package carrier

import "sync/atomic"

// Holder is a stream that says how many bytes it holds.
type Holder interface {
	// Held is those that came and were not read yet, and those that were written and
	// not sent yet.
	Held() int64
	// Unread is those that came and were not read yet. What a copy has in hand is
	// not read before it is written.
	Unread() int64
	// Tally counts them in n, too, now and with each change until the last is gone.
	// It is called at most once, and before the stream has a reader.
	Tally(n *atomic.Int64)
}

// Held implements Holder.
func (st *muxStream) Held() int64 {
	st.mu.Lock()
	defer st.mu.Unlock()
	n := st.data.n + st.out.n
	if st.coming != nil {
		n += st.coming.early.n
	}
	return n
}

// Unread implements Holder.
func (st *muxStream) Unread() int64 { return st.unread.Load() }

// Tally implements Holder.
func (st *muxStream) Tally(n *atomic.Int64) {
	st.mu.Lock()
	defer st.mu.Unlock()
	n.Add(st.unread.Load())
	st.tally.Store(n)
}

// count counts unread bytes of the stream. What is counted without the lock has been
// read, and nobody reads before Tally.
func (st *muxStream) count(n int64) {
	st.unread.Add(n)
	if t := st.tally.Load(); t != nil {
		t.Add(n)
	}
}
