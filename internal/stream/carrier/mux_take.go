// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"encoding/binary"
	"net"
)

// chargeLocked counts what waits and may be sent.
func (st *muxStream) chargeLocked() {
	may := max(0, min(st.out.n, st.limit-st.sent))
	st.s.queued.Add(may - int64(st.charged))
	st.charged = int32(may)
}

// somethingLocked says whether a frame may be sent now.
func (st *muxStream) somethingLocked() bool {
	switch {
	case st.werr != nil:
		return false
	case st.opening || st.moving || st.mayMoveLocked():
		return true
	case st.out.n > 0 && st.sent < st.limit:
		return true
	case st.out.n > 0 && !st.drop:
		return false
	}
	return st.fin && !st.finSent || st.rst
}

// mayMoveLocked says that our direction shall travel elsewhere and nothing forbids it.
func (st *muxStream) mayMoveLocked() bool {
	return st.want != st.lane && st.prev == nil && st.known && st.werr == nil
}

// take moves frames into the batch of lane l, whose turn it is. again says that
// the stream has more to send, on lane to.
func (st *muxStream) take(l *lane, b *batch, alone bool) (to *lane, again, bulk bool) {
	st.mu.Lock()
	defer st.unlockFinished() // unlocks
	if st.want != st.lane && (st.want.dead.Load() || st.want.shut.Load()) {
		st.want = st.lane
	}
	if st.mayMoveLocked() {
		st.prev, st.lane, st.moving = st.lane, st.want, true
		st.moves++
		st.movedAt = st.sent
		st.finSent = false // MOVE may overtake FIN, so FIN comes again behind it
	}
	if st.lane == l {
		st.fillLocked(l, b, alone)
	}
	if again = st.somethingLocked() && !st.lane.dead.Load(); !again {
		st.queued, st.deficit = false, 0
	}
	return st.lane, again, st.pace.bulk
}

func (st *muxStream) fillLocked(l *lane, b *batch, alone bool) {
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
	st.fillDataLocked(l, b, alone)
	from = len(b.small)
	if st.out.n == 0 && st.fin && !st.finSent {
		st.finSent = true
		b.small = appendHeader(b.small, frameFin, 0, st.id)
	}
	if st.rst && (st.out.n == 0 || st.drop && st.sent >= st.limit) {
		st.dropOutLocked()
		st.rst, st.finSent = false, true
		st.werr = net.ErrClosed
		b.small = appendHeader(b.small, frameRst, 4, st.id)
		b.small = binary.BigEndian.AppendUint32(b.small, st.rstCode)
	}
	if len(b.small) > from {
		b.grown(from)
	}
}

func (st *muxStream) fillDataLocked(l *lane, b *batch, alone bool) {
	if st.out.n == 0 || st.sent >= st.limit {
		return
	}
	quota := int(st.deficit) + b.quantum
	if alone {
		quota = b.most
	}
	room := max(b.most-b.size-headerSize, quantum+headerSize)
	for st.out.n > 0 && st.sent < st.limit && room > smallFrame {
		n := min(st.out.head.len(), quota, room, int(min(st.limit-st.sent, mostPayload)))
		st.frameLocked(l, b, n)
		quota -= n
		room -= n + headerSize
		if quota <= smallFrame || cap(b.small)-len(b.small) < mostTake {
			break
		}
	}
	st.chargeLocked()
	st.deficit = int32(quota)
	if alone || st.out.n == 0 {
		st.deficit = 0
	}
	if st.outs <= mostOut/2 {
		st.writable.signal()
	}
}

// frameLocked moves n bytes of DATA into the batch, all from one chunk.
func (st *muxStream) frameLocked(l *lane, b *batch, n int) {
	c := st.out.head
	if n <= smallFrame {
		from := len(b.small)
		b.small = append(appendHeader(b.small, frameData, n, st.id), c.b[c.r:c.r+n]...)
		b.grown(from)
		if empty := st.out.took(n); empty != nil {
			st.outs--
			l.s.budget.pools.put(empty)
		}
	} else {
		// The header lies in what was sent of the chunk before, or in its margin.
		frame := c.b[c.r-headerSize : c.r+n]
		putHeader(frame, frameData, n, st.id)
		empty := st.out.took(n)
		if empty != nil {
			st.outs--
		}
		b.add(frame, empty)
	}
	st.sent += int64(n)
}

// dropOutLocked gives up what was not sent. A sender may still be reading the chunks,
// so that they are not for the pool.
func (st *muxStream) dropOutLocked() {
	if st.out.n > 0 {
		st.out, st.outs = chunkList{}, 0
		st.chargeLocked()
	}
}

// unlockFinished unlocks and removes the stream if it has ended both ways.
func (st *muxStream) unlockFinished() {
	over := st.overLocked()
	st.mu.Unlock()
	if over {
		st.s.remove(st)
	}
	st.s.feed()
}

func (st *muxStream) overLocked() bool {
	return st.finSent && (st.finished || st.ended) && !st.rst || st.werr != nil && st.finSent
}
