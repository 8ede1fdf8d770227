// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"encoding/binary"
	"net"
)

// charge counts what waits and may be sent. It needs the lock.
func (st *muxStream) charge() {
	may := int64(0)
	if st.out != nil {
		may = max(0, min(int64(st.out.len()), st.limit-st.sent))
	}
	st.s.queued.Add(may - st.charged)
	st.charged = may
}

// something says whether a frame may be sent now. It needs the lock.
func (st *muxStream) something() bool {
	switch {
	case st.werr != nil:
		return false
	case st.opening || st.moving || st.mayMove():
		return true
	case st.out != nil && st.sent < st.limit:
		return true
	case st.out != nil && !st.drop:
		return false
	}
	return st.fin && !st.finSent || st.rst
}

// mayMove says that our direction shall travel elsewhere and nothing forbids it.
// It needs the lock.
func (st *muxStream) mayMove() bool {
	return st.want != st.lane && st.prev == nil && st.known && st.werr == nil
}

// take moves frames into the batch of lane l, whose turn it is. again says that
// the stream has more to send, on lane to.
func (st *muxStream) take(l *lane, b *batch, alone bool) (to *lane, again, bulk bool) {
	st.mu.Lock()
	defer st.finish() // unlocks
	if st.want != st.lane && (st.want.dead.Load() || st.want.shut.Load()) {
		st.want = st.lane
	}
	if st.mayMove() {
		st.prev, st.lane, st.moving = st.lane, st.want, true
		st.moves++
		st.movedAt = st.sent
		st.finSent = false // MOVE may overtake FIN, so FIN comes again behind it
	}
	if st.lane == l {
		st.fill(l, b, alone)
	}
	if again = st.something() && !st.lane.dead.Load(); !again {
		st.queued, st.deficit = false, 0
	}
	return st.lane, again, st.pace.bulk
}

// fill needs the lock.
func (st *muxStream) fill(l *lane, b *batch, alone bool) {
	from := len(b.small)
	if st.opening {
		st.opening = false
		b.small = appendHeader(b.small, frameOpen, 8, st.id)
		b.small = binary.BigEndian.AppendUint32(b.small, uint32(st.window.granted))
		b.small = binary.BigEndian.AppendUint32(b.small, uint32(st.limit))
	}
	if st.moving {
		st.moving = false
		b.small = appendHeader(b.small, frameMove, 8, st.id)
		b.small = binary.BigEndian.AppendUint64(b.small, uint64(st.movedAt))
	}
	if len(b.small) > from {
		b.grown(from)
	}
	st.fillData(l, b, alone)
	from = len(b.small)
	if st.out == nil && st.fin && !st.finSent {
		st.finSent = true
		b.small = appendHeader(b.small, frameFin, 0, st.id)
	}
	if st.rst && (st.out == nil || st.drop && st.sent >= st.limit) {
		st.dropOut()
		st.rst, st.finSent = false, true
		st.werr = net.ErrClosed
		b.small = appendHeader(b.small, frameRst, 4, st.id)
		b.small = binary.BigEndian.AppendUint32(b.small, st.rstCode)
	}
	if len(b.small) > from {
		b.grown(from)
	}
}

// fillData needs the lock.
func (st *muxStream) fillData(l *lane, b *batch, alone bool) {
	c := st.out
	if c == nil || st.sent >= st.limit {
		return
	}
	n := int(min(int64(c.len()), st.limit-st.sent))
	if alone {
		st.deficit = 0
	} else {
		st.deficit += quantum
		n = min(n, st.deficit)
		st.deficit -= n
	}
	n = min(n, max(batchSize-b.size-headerSize, quantum))
	if n <= smallFrame {
		from := len(b.small)
		b.small = append(appendHeader(b.small, frameData, n, st.id), c.b[c.r:c.r+n]...)
		b.grown(from)
		if c.r += n; c.len() == 0 {
			st.out = nil
			l.s.budget.pools.put(c)
		}
	} else {
		// The header lies in what was sent of the chunk before, or in its margin.
		frame := c.b[c.r-headerSize : c.r+n]
		putHeader(frame, frameData, n, st.id)
		c.r += n
		var recycle *chunk
		if c.len() == 0 {
			st.out, recycle = nil, c
		}
		b.add(frame, recycle)
	}
	st.sent += int64(n)
	st.charge()
	if st.out == nil {
		st.deficit = 0
		st.writable.Signal()
	}
}

// dropOut gives up what was not sent. A sender may still be reading the chunk, so
// that it is not for the pool. It needs the lock.
func (st *muxStream) dropOut() {
	if st.out != nil {
		st.out = nil
		st.charge()
	}
}

// finish unlocks and removes the stream if it has ended both ways.
func (st *muxStream) finish() {
	over := st.over()
	st.mu.Unlock()
	if over {
		st.s.remove(st)
	}
	st.s.feed()
}

// over needs the lock.
func (st *muxStream) over() bool {
	return st.finSent && (st.finished || st.ended) && !st.rst || st.werr != nil && st.finSent
}
