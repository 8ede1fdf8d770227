// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"sync"
	"time"
)

func (st *muxStream) SetDeadline(t time.Time) error {
	st.SetReadDeadline(t)
	return st.SetWriteDeadline(t)
}

func (st *muxStream) SetReadDeadline(t time.Time) error {
	st.setDeadline(&st.reading, t, &st.readable)
	return nil
}

func (st *muxStream) SetWriteDeadline(t time.Time) error {
	st.setDeadline(&st.sending, t, &st.writable)
	return nil
}

// deadline is guarded by the stream's lock. A stream without one has none.
type deadline struct {
	past  bool
	timer *time.Timer
}

func (d *deadline) over() bool { return d != nil && d.past }

// stop forgets the timer; else it would keep the stream in memory.
func (d *deadline) stop() {
	if d != nil && d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
}

func (st *muxStream) setDeadline(at **deadline, t time.Time, wake *cond) {
	st.mu.Lock()
	defer st.mu.Unlock()
	(*at).stop()
	*at = nil
	if t.IsZero() {
		return
	}
	d := &deadline{}
	*at = d
	left := time.Until(t)
	if left <= 0 {
		d.past = true
		wake.broadcast()
		return
	}
	d.timer = time.AfterFunc(left, func() {
		st.mu.Lock()
		defer st.mu.Unlock()
		if *at == d { // not replaced meanwhile
			d.past = true
			wake.broadcast()
		}
	})
}

// cond is a sync.Cond that takes no memory before somebody waits: most streams
// that are idle have nobody who waits to write.
type cond struct{ c *sync.Cond }

// wait needs the lock, mu, as do the others.
func (c *cond) wait(mu *sync.Mutex) {
	if c.c == nil {
		c.c = sync.NewCond(mu)
	}
	c.c.Wait()
}

func (c *cond) signal() {
	if c.c != nil {
		c.c.Signal()
	}
}

func (c *cond) broadcast() {
	if c.c != nil {
		c.c.Broadcast()
	}
}
