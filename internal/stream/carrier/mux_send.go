// SPDX-License-Identifier: Apache-2.0

package carrier

import "net"

// inlineRounds is how many writes the taker of a turn makes for others before a
// goroutine of the lane continues.
const inlineRounds = 2

// batch is what one turn writes at once: pieces of small, and frames that lie in
// their stream's chunk.
type batch struct {
	small   []byte
	segs    []segment
	size    int
	most    int    // for size
	quantum int    // of a stream in its turn
	out     []byte // for the socket
}

type segment struct {
	bytes   []byte // a frame in a chunk; nil for small[from:to]
	from    int
	to      int
	recycle *chunk // to the pool once written
}

// smallSize lets interactive streams fill their half of a write with small frames
// and leaves room for the other half.
const smallSize = 48 << 10

// mostTake is the room in small that any stream may need: OPEN, MOVE, one small
// DATA, FIN, RST.
const mostTake = 16 + 16 + headerSize + smallFrame + 8 + 12

func newBatch() *batch {
	return &batch{small: make([]byte, 0, smallSize), out: make([]byte, 0, batchSize+4<<10)}
}

// full says that no turn shall begin any more: it would be cut to nearly nothing, and
// what it is owed would make the next write of its stream too large.
func (b *batch) full() bool {
	return b.most-b.size < smallFrame || cap(b.small)-len(b.small) < mostTake
}

// grown tells that bytes were appended to small from there on.
func (b *batch) grown(from int) {
	b.size += len(b.small) - from
	if n := len(b.segs); n > 0 && b.segs[n-1].bytes == nil && b.segs[n-1].to == from {
		b.segs[n-1].to = len(b.small)
		return
	}
	b.segs = append(b.segs, segment{from: from, to: len(b.small)})
}

func (b *batch) add(bytes []byte, recycle *chunk) {
	b.size += len(bytes)
	b.segs = append(b.segs, segment{bytes: bytes, recycle: recycle})
}

// send is the turn. Inline it never blocks.
func (l *lane) send(inline bool) {
	for rounds := 0; ; rounds++ {
		if inline && rounds >= inlineRounds && l.own() {
			go l.proceed()
			return
		}
		if !l.gather() {
			return
		}
		err := l.write()
		if err == nil && l.sock != nil {
			done := false
			if done, err = l.sock.tryFlush(); err == nil && !done {
				if inline && l.own() {
					go l.finish()
					return
				}
				err = l.wait()
			}
		}
		if err != nil {
			l.lose(err, true)
			return
		}
	}
}

// own counts a goroutine that is to go on with the turn; false if the connection is
// lost, and there is none to start.
func (l *lane) own() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.failed {
		l.s.owned.Add(1)
	}
	return !l.failed
}

// proceed is the turn in a goroutine of its own.
func (l *lane) proceed() {
	defer l.s.release()
	l.send(false)
}

// finish is proceed for a turn whose last write did not fit.
func (l *lane) finish() {
	defer l.s.release()
	if err := l.wait(); err != nil {
		l.lose(err, true)
		return
	}
	l.send(false)
}

// wait sends the rest, however long the link takes.
func (l *lane) wait() error {
	l.mu.Lock()
	l.waits = !l.noWait
	l.mu.Unlock()
	if !l.waits {
		return net.ErrClosed
	}
	err := l.sock.flush()
	l.mu.Lock()
	l.waits = false
	l.mu.Unlock()
	return err
}

// gather fills the batch, or ends the turn if there is nothing.
func (l *lane) gather() bool {
	l.mu.Lock()
	if l.failed || !l.somethingLocked() {
		l.turn = false
		b := l.batch
		l.batch = nil
		if b != nil && l.sock != nil {
			b.out = l.sock.back()
		}
		over := l.failed || l.ending
		l.mu.Unlock()
		if b != nil {
			l.s.budget.batches.Put(b)
		}
		if over {
			l.lose(net.ErrClosed, false)
		}
		return false
	}
	b := l.beginLocked()
	if len(l.raw) > 0 {
		b.add(l.raw, nil)
		l.raw = nil
	}
	if l.due {
		l.due = false
		from := len(b.small)
		b.small = append(appendHeader(b.small, framePong, len(l.pong), 0), l.pong[:]...)
		b.grown(from)
	}
	ctl := l.ctl
	l.ctl = streamQueue{}
	l.mu.Unlock()

	l.gatherControl(b, ctl)
	l.round++
	for !b.full() {
		st, alone := l.pop(b)
		if st == nil {
			break
		}
		st.round = l.round
		if to, again, bulk := st.take(l, b, alone); again {
			to.push(st, bulk)
			if to != l {
				to.kickLater()
			}
		}
	}
	return true
}

// beginLocked makes the batch ready.
func (l *lane) beginLocked() *batch {
	if l.batch == nil {
		b, ok := l.s.budget.batches.Get().(*batch)
		if !ok {
			b = newBatch()
		}
		l.batch = b
	} else if l.sock != nil {
		l.batch.out = l.sock.back()
	}
	b := l.batch
	if l.sock != nil {
		l.sock.lend(b.out)
		b.out = nil
	}
	b.small, b.segs, b.size, b.most, b.quantum = b.small[:0], b.segs[:0], 0, batchSize, quantum
	if l.fresh.head == nil && l.busy.quiet(l.s.now()) {
		b.most, b.quantum = bulkBatch, 2*quantum
	}
	return b
}

// kickLater is kick for the owner of another lane's turn, who must not work for both.
func (l *lane) kickLater() {
	l.mu.Lock()
	start := !l.turn && !l.failed && l.somethingLocked()
	if start {
		l.turn = true
		l.s.owned.Add(1)
	}
	l.mu.Unlock()
	if start {
		go l.proceed()
	}
}

// gatherControl takes WINDOW and MOVED of the streams; what does not fit waits.
func (l *lane) gatherControl(b *batch, ctl streamQueue) {
	from := len(b.small)
	var away []*muxStream
	for st := ctl.popControl(); st != nil; st = ctl.popControl() {
		if l.shut.Load() && st.hasLeft(l) {
			away = append(away, st)
			continue
		}
		if cap(b.small)-len(b.small) < mostTake {
			ctl.unpopControl(st)
			break
		}
		b.small = st.takeControl(b.small)
	}
	if len(b.small) > from {
		b.grown(from)
	}
	if ctl.head != nil {
		l.mu.Lock()
		ctl.tail.ctlNext = l.ctl.head
		if l.ctl.tail == nil {
			l.ctl.tail = ctl.tail
		}
		l.ctl.head = ctl.head
		l.mu.Unlock()
	}
	for _, st := range away { // LEAVE is the last frame here
		st.sendControl((*lane).kickLater)
	}
}

// hasLeft says that the stream travels elsewhere now, and takes it out of l's queue
// for control frames.
func (st *muxStream) hasLeft(l *lane) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.lane == l {
		return false
	}
	st.ctlLane = nil
	return true
}

// pop takes the next stream, each at most once in a round. alone says that no
// other waits.
func (l *lane) pop(b *batch) (st *muxStream, alone bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := &l.fresh
	if q.head == nil || q.head.round == l.round || b.size > b.most/2 && l.old.head != nil {
		q = &l.old
	}
	if q.head == nil || q.head.round == l.round {
		return nil, false
	}
	st = q.pop()
	return st, l.fresh.head == nil && l.old.head == nil
}

// write gives the batch to TLS, and with it to the socket's collection.
func (l *lane) write() error {
	b := l.batch
	var err error
	for i := range b.segs {
		seg := &b.segs[i]
		bytes := seg.bytes
		if bytes == nil {
			bytes = b.small[seg.from:seg.to]
		}
		if err == nil {
			_, err = l.conn.Write(bytes)
		}
		if seg.recycle != nil {
			l.s.budget.pools.put(seg.recycle)
		}
		*seg = segment{}
	}
	l.out.Add(int64(b.size))
	return err
}
