// SPDX-License-Identifier: Apache-2.0

package carrier

// direct is a CopyTo that waits for data, and whose destination takes bytes
// without waiting: who reads the connection writes them there at once.
type direct struct {
	dst   PromptWriter
	moved func(int)
	busy  bool  // the connection's reader writes
	err   error // of dst
}

// deliver writes p, which lies in c if that is not nil, to the destination.
func (st *muxStream) deliver(d *direct, p []byte, c *chunk) {
	n, err := d.dst.WriteNow(p)
	if d.moved != nil && n > 0 {
		d.moved(n)
	}
	st.mu.Lock()
	d.busy = false
	d.err = err
	if rest := p[n:]; err == nil && len(rest) > 0 && !st.ended {
		if c == nil {
			c = st.s.budget.pools.get(len(rest))
			c.w = copy(c.b, rest)
		} else {
			c.r = n
		}
		st.s.hold(int64(len(rest)))
		st.count(int64(len(rest)))
		st.data.prepend(c)
		c = nil
	} else {
		n = len(p)
	}
	if st.data.n > 0 || err != nil || st.finished || st.rerr != nil || st.ended || st.deadlines.read().over() {
		st.readable.signal()
	}
	st.mu.Unlock()
	st.s.budget.pools.put(c)
	st.credit(n)
}
