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
	st.setDeadline(func(d *deadlines) **deadline { return &d.reading }, t, &st.readable)
	return nil
}

func (st *muxStream) SetWriteDeadline(t time.Time) error {
	st.setDeadline(func(d *deadlines) **deadline { return &d.sending }, t, &st.writable)
	return nil
}

// deadline is guarded by the stream's lock. A stream without one has none, and a
// timer only while somebody waits: most deadlines are met without a wait.
type deadline struct {
	at    time.Time
	timer *time.Timer
}

func (d *deadline) over() bool { return d != nil && !time.Now().Before(d.at) }

// stop forgets the timer; else it would keep the stream in memory.
func (d *deadline) stop() {
	if d != nil && d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
}

// deadlines are those of a stream. Most streams have none: a nil pointer has none either.
type deadlines struct{ reading, sending *deadline }

func (d *deadlines) read() *deadline {
	if d == nil {
		return nil
	}
	return d.reading
}

func (d *deadlines) write() *deadline {
	if d == nil {
		return nil
	}
	return d.sending
}

func (st *muxStream) setDeadline(of func(*deadlines) **deadline, t time.Time, wake *cond) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.deadlines == nil {
		if t.IsZero() {
			return
		}
		st.deadlines = &deadlines{}
	}
	at := of(st.deadlines)
	(*at).stop()
	*at = nil
	if !t.IsZero() {
		*at = &deadline{at: t}
		wake.broadcast() // a waiter gets a timer, or has waited too long
	}
}

// waitLocked waits until it is woken, or d is over.
func (st *muxStream) waitLocked(on *cond, d *deadline) {
	if d != nil && d.timer == nil {
		d.timer = time.AfterFunc(time.Until(d.at), func() {
			st.mu.Lock()
			defer st.mu.Unlock()
			d.timer = nil // another one follows if the clock was set back
			on.broadcast()
		})
	}
	on.waitLocked(&st.mu)
}

// cond is a sync.Cond that takes no memory before somebody waits: most streams
// that are idle have nobody who waits to write.
type cond struct{ c *sync.Cond }

// waitLocked waits with mu, as those that wake it hold it.
func (c *cond) waitLocked(mu *sync.Mutex) {
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
