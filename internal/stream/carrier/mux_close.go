// SPDX-License-Identifier: Apache-2.0

package carrier

import "net"

// CloseWrite ends our direction behind what was written.
func (st *muxStream) CloseWrite() error {
	st.mu.Lock()
	switch {
	case st.ended:
		st.mu.Unlock()
		return net.ErrClosed
	case st.werr != nil:
		err := st.werr
		st.mu.Unlock()
		return err
	}
	st.fin = true
	st.writable.broadcast()
	st.mu.Unlock()
	st.send()
	return nil
}

// Close ends both directions: the peer gets what was written, then the end.
func (st *muxStream) Close() error {
	st.mu.Lock()
	if st.ended {
		st.mu.Unlock()
		return nil
	}
	freed := st.leaveOffLocked()
	if st.werr != nil {
		st.finSent = true
	} else {
		st.fin = true
		if !st.finished {
			st.rst, st.rstCode = true, resetClosed
		}
	}
	st.unlockClosed(freed)
	return nil
}

// Reset ends both directions at once. What has no credit is not sent any more.
func (st *muxStream) Reset(code uint32) error {
	st.mu.Lock()
	freed := st.leaveOffLocked()
	if st.werr == nil && !(st.finSent && st.finished) {
		st.drop, st.rst, st.rstCode = true, true, code
	}
	st.unlockClosed(freed)
	return nil
}

// leaveOffLocked begins the end by our application: nobody waits or reads any more.
func (st *muxStream) leaveOffLocked() (unread chunkList) {
	st.ended = true
	st.deadlines.read().stop()
	st.deadlines.write().stop()
	st.deadlines = nil
	st.wakeLocked()
	return st.forgetLocked()
}

// unlockClosed ends the end: it unlocks, and sends what is due or removes the stream.
func (st *muxStream) unlockClosed(unread chunkList) {
	over := st.overLocked()
	st.mu.Unlock()
	st.s.free(unread)
	if over {
		st.s.remove(st)
		return
	}
	st.send()
}

// fail ends the stream from below; readers get what has come, then err.
func (st *muxStream) fail(err error) {
	st.mu.Lock()
	if st.werr == nil {
		st.werr = err
	}
	if st.rerr == nil && !st.finished {
		st.rerr = err
	}
	st.finSent, st.rst, st.fin = true, false, false
	st.dropOutLocked()
	freed := st.forgetEarlyLocked()
	st.wakeLocked()
	st.mu.Unlock()
	st.s.free(freed)
}

func (st *muxStream) wakeLocked() {
	st.readable.broadcast()
	st.writable.broadcast()
}
