// SPDX-License-Identifier: Apache-2.0

package carrier

// Holder is a stream that says how many bytes it holds: those that came and were
// not read yet, and those that were written and not sent yet.
type Holder interface{ Held() int64 }

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
