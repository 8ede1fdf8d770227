// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"encoding/binary"
	"io"
	"net"
	"os"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// Read gives what has come.
func (st *muxStream) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	st.readOne.Lock()
	defer st.readOne.Unlock()
	st.mu.Lock()
	if err := st.awaitLocked(); err != nil {
		st.mu.Unlock()
		return 0, err
	}
	n := 0
	for c := st.data.head; c != nil && n < len(b); c = st.data.head {
		m := copy(b[n:], c.b[c.r:c.w])
		n += m
		c.r += m
		st.data.n -= int64(m)
		if c.len() > 0 {
			break
		}
		st.data.pop()
		st.s.budget.pools.put(c)
	}
	st.mu.Unlock()
	st.consumed(n)
	return n, nil
}

// awaitLocked waits for data.
func (st *muxStream) awaitLocked() error {
	for {
		d := st.direct
		switch {
		case d != nil && d.busy: // what comes next is behind what is being written
		case d != nil && d.err != nil:
			return nil
		case st.ended:
			return net.ErrClosed
		case st.deadlines.read().over():
			return os.ErrDeadlineExceeded
		case st.data.n > 0:
			return nil
		case st.finished:
			return io.EOF
		case st.rerr != nil:
			return st.rerr
		}
		st.waitLocked(&st.readable, st.deadlines.read())
	}
}

// CopyTo is described at Stream. It hands the received chunks to dst as they are.
func (st *muxStream) CopyTo(dst io.Writer, moved func(int)) (dstErr, err error) {
	st.readOne.Lock()
	defer st.readOne.Unlock()
	var d *direct
	if prompt, ok := dst.(PromptWriter); ok {
		d = &direct{dst: prompt, moved: moved}
	}
	for {
		st.mu.Lock()
		st.direct = d
		err := st.awaitLocked()
		st.direct = nil
		if err == nil && d != nil && d.err != nil {
			dstErr = d.err
		}
		if err != nil || dstErr != nil {
			st.mu.Unlock()
			return dstErr, err
		}
		c := st.data.pop()
		st.mu.Unlock()
		n := c.len()
		wrote, dstErr := dst.Write(c.b[c.r:c.w])
		if dstErr == nil && wrote < n {
			dstErr = io.ErrShortWrite
		}
		st.s.budget.pools.put(c)
		st.consumed(n)
		if moved != nil && wrote > 0 {
			moved(wrote)
		}
		if dstErr != nil {
			return dstErr, nil
		}
	}
}

// WriteTo implements io.WriterTo.
func (st *muxStream) WriteTo(dst io.Writer) (n int64, err error) {
	dstErr, err := st.CopyTo(dst, func(m int) { n += int64(m) })
	if dstErr != nil {
		return n, dstErr
	}
	if err == io.EOF {
		err = nil
	}
	return n, err
}

// consumed gives credit for n bytes that were read.
func (st *muxStream) consumed(n int) {
	st.s.hold(-int64(n))
	st.count(-int64(n))
	st.credit(n)
}

func (st *muxStream) credit(n int) {
	now := st.s.now()
	room := int64(0)
	if st.s.budget.unread.Load() < st.s.budget.most.Load()/2 {
		room = mostGrowth - st.s.growth.Load()
	}
	st.mu.Lock()
	reserve := st.window.consume(int64(n), now, st.s.trip(), room)
	soon, due := false, false
	if !st.ended && !st.finished && st.rerr == nil {
		soon, due = st.window.owes() >= st.window.much()/2, st.window.owes() >= st.window.much()
	}
	if st.ended || st.rerr != nil {
		reserve += st.window.drop()
	}
	grown, eager := st.window.reserved > 0, st.window.eager
	st.mu.Unlock()
	if eager {
		st.s.measure(now, sampleEvery)
	} else if due {
		st.s.measure(now, limit.PingLive)
	}
	if reserve != 0 {
		st.s.growth.Add(reserve)
	}
	if grown {
		st.s.watch(st)
	}
	switch {
	case due:
		st.sendControl((*lane).kick)
	case soon:
		st.sendControl(nil)
	}
}

// sendControl queues the stream's WINDOW and MOVED, and kicks the connection. Without
// a kick they go with what it sends next.
func (st *muxStream) sendControl(kick func(*lane)) {
	for {
		st.mu.Lock()
		if st.ctlLane != nil {
			l := st.ctlLane
			st.mu.Unlock()
			if kick != nil {
				kick(l)
			}
			return
		}
		l := st.lane
		st.ctlLane = l
		st.mu.Unlock()
		if l.pushControl(st) {
			if kick != nil {
				kick(l)
			}
			return
		}
		// The connection is lost. The stream ends with it, or has moved meanwhile.
		st.mu.Lock()
		again := st.ctlLane == l && st.lane != l
		if st.ctlLane == l {
			st.ctlLane = nil
		}
		st.mu.Unlock()
		if !again {
			return
		}
	}
}

// takeControl appends WINDOW and MOVED.
func (st *muxStream) takeControl(b []byte) []byte {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.ctlLane = nil
	if st.overLocked() {
		return b // its peer has forgotten it
	}
	if owes := st.window.owes(); st.windowDue || owes > 0 && owes >= st.window.much()/2 && !st.ended && !st.finished &&
		st.rerr == nil {
		st.windowDue = false
		st.window.grant()
		b = binary.BigEndian.AppendUint64(appendHeader(b, frameWindow, 8, st.id), uint64(st.window.granted))
	}
	if st.movedDue {
		st.movedDue = false
		b = binary.BigEndian.AppendUint64(appendHeader(b, frameMoved, 8, st.id), uint64(st.switched))
	}
	return b
}

// forgetLocked gives up what was not read.
func (st *muxStream) forgetLocked() chunkList {
	all := st.data
	st.data = chunkList{}
	if m := st.coming; m != nil {
		all.join(&m.early)
	}
	st.count(-all.n)
	return all
}

// forgetEarlyLocked gives up what will never be in order.
func (st *muxStream) forgetEarlyLocked() chunkList {
	m := st.coming
	if m == nil {
		return chunkList{}
	}
	all := m.early
	m.early = chunkList{}
	st.count(-all.n)
	return all
}

// repeat sends WINDOW and MOVED again after the loss of a connection.
func (st *muxStream) repeat(gone *lane) {
	st.mu.Lock()
	owes := st.window.owes() >= st.window.much()/2 // what was queued on gone was not counted as given
	st.windowDue = (owes || st.window.granted > int64(st.window.least)) && !st.finished && !st.ended
	st.movedDue = st.switched > 0
	if st.ctlLane == gone {
		st.ctlLane = nil
	}
	due := st.windowDue || st.movedDue
	st.mu.Unlock()
	if due {
		st.sendControl((*lane).kick)
	}
}

// waitsOn says that control frames of the stream wait to be sent on l.
func (st *muxStream) waitsOn(l *lane) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.ctlLane == l
}

// rest shrinks an idle window.
func (st *muxStream) rest(now time.Duration) (reserve int64, grown, bulk bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	reserve = st.window.rest(now)
	st.pace.leak(now)
	return reserve, st.window.reserved > 0, st.pace.bulk
}
