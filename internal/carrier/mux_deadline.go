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
	st.reading.set(t, &st.readable)
	return nil
}

func (st *muxStream) SetWriteDeadline(t time.Time) error {
	st.sending.set(t, &st.writable)
	return nil
}

// deadline is guarded by the lock of the condition that it wakes.
type deadline struct {
	past  bool
	timer *time.Timer
	round uint32 // timers of older rounds do nothing
}

// stop forgets the timer; else it would keep the stream in memory.
func (d *deadline) stop() {
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	d.round++
}

func (d *deadline) set(t time.Time, wake *sync.Cond) {
	wake.L.Lock()
	defer wake.L.Unlock()
	d.stop()
	d.past = false
	if t.IsZero() {
		return
	}
	left := time.Until(t)
	if left <= 0 {
		d.past = true
		wake.Broadcast()
		return
	}
	round := d.round
	d.timer = time.AfterFunc(left, func() {
		wake.L.Lock()
		defer wake.L.Unlock()
		if d.round == round {
			d.past = true
			wake.Broadcast()
		}
	})
}
