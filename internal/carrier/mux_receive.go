// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"encoding/binary"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// receiver is the receiving side of a stream, under the stream's lock. What the
// peer sends on the connection of its direction is stored in order; after a MOVE
// what comes on the next connection waits in early.
type receiver struct {
	window window
	data   chunkList
	offset int64 // bytes that came in order

	lane     *lane // the peer's direction travels here
	nextLane *lane // and from moveAt on here; nil if it does not move
	moveAt   int64
	early    chunkList
	ahead    int64 // bytes that came there
	earlyFin bool
	earlyRst bool
	code     uint32 // of earlyRst
	switched int64  // offset of the newest MOVE that is done, for MOVED; -1: none

	finished bool  // FIN came in order
	rerr     error // what readers get behind data
	readOne  sync.Mutex
}

// chunkList is a list of chunks with n bytes.
type chunkList struct {
	head, tail *chunk
	n          int64
}

func (l *chunkList) append(c *chunk) {
	c.next = nil
	if l.tail == nil {
		l.head = c
	} else {
		l.tail.next = c
	}
	l.tail = c
	l.n += int64(c.len())
}

func (l *chunkList) pop() *chunk {
	c := l.head
	if c == nil {
		return nil
	}
	if l.head = c.next; l.head == nil {
		l.tail = nil
	}
	c.next = nil
	l.n -= int64(c.len())
	return c
}

// join appends other and empties it.
func (l *chunkList) join(other *chunkList) {
	if other.head == nil {
		return
	}
	if l.tail == nil {
		l.head = other.head
	} else {
		l.tail.next = other.head
	}
	l.tail = other.tail
	l.n += other.n
	*other = chunkList{}
}

// receive reads n bytes of DATA from lane l and stores them.
func (st *muxStream) receive(l *lane, n int) error {
	if n <= scratchSize {
		p := l.scratch[:n]
		if _, err := io.ReadFull(l, p); err != nil {
			return err
		}
		return st.stored(st.store(l, p, nil))
	}
	for n > 0 {
		piece := min(n, 1<<mostChunk)
		c := st.s.budget.pools.get(piece)
		c.w = piece
		if _, err := io.ReadFull(l, c.b[:piece]); err != nil {
			return err
		}
		if err := st.stored(st.store(l, nil, c)); err != nil {
			return err
		}
		n -= piece
	}
	return nil
}

// stored does what DATA may cause beside being stored.
func (st *muxStream) stored(followed bool, err error) error {
	if !followed {
		return err
	}
	st.mu.Lock()
	over := st.over()
	st.mu.Unlock()
	if over {
		st.s.remove(st)
	} else {
		st.sendControl() // MOVED
	}
	return err
}

// store takes either small bytes, which it copies, or a chunk. followed says that
// the stream's direction has now come over from another connection.
func (st *muxStream) store(l *lane, small []byte, c *chunk) (followed bool, err error) {
	n := int64(len(small))
	if c != nil {
		n = int64(c.len())
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.werr != nil && st.rerr != nil { // RST came, or is on its way to the peer
		st.s.budget.pools.put(c)
		return false, nil
	}
	st.known = true
	to := &st.data
	switch {
	case !st.window.receive(n):
		return false, violation("stream %d has more data than credit", st.id)
	case l == st.receiver.lane && st.finished, l == st.nextLane && st.earlyFin:
		return false, violation("stream %d has data behind its end", st.id)
	case l == st.receiver.lane:
		st.offset += n
		if st.nextLane != nil && st.offset > st.moveAt {
			return false, violation("stream %d has data behind its move", st.id)
		}
	case l == st.nextLane:
		st.ahead += n
		to = &st.early
	default:
		return false, violation("stream %d has data on a connection that is not its own", st.id)
	}
	if st.ended { // nobody reads, but its peer may still move it
		st.s.budget.pools.put(c)
	} else {
		st.s.budget.unread.Add(n)
		if c == nil {
			c = st.behind(to, small)
		}
		if c != nil {
			to.append(c)
		}
	}
	if followed = st.nextLane != nil && st.offset == st.moveAt; followed {
		st.follow()
	}
	st.readable.Signal()
	return followed, nil
}

// behind copies small bytes behind the last chunk of the list where there is
// room, so that many small frames take no more memory than their bytes. It
// gives a new chunk if there is none. It needs the lock.
func (st *muxStream) behind(to *chunkList, small []byte) *chunk {
	if t := to.tail; t != nil && len(t.b)-t.w >= len(small) {
		t.w += copy(t.b[t.w:], small)
		to.n += int64(len(small))
		return nil
	}
	size := len(small)
	if to.tail != nil { // a second one: more will come
		size = max(size, scratchSize)
	}
	c := st.s.budget.pools.get(size)
	c.w = copy(c.b, small)
	return c
}

// follow makes the next connection the stream's. It needs the lock.
func (st *muxStream) follow() {
	st.receiver.lane, st.nextLane = st.nextLane, nil
	st.switched = st.moveAt
	st.offset, st.ahead = st.offset+st.ahead, 0
	st.data.join(&st.early)
	st.movedDue = true
	if st.earlyFin {
		st.earlyFin, st.finished = false, true
		st.readable.Broadcast()
	}
	if st.earlyRst {
		st.earlyRst = false
		st.wasReset(st.code)
	}
}

// handle takes the frames of a stream that carry no data.
func (st *muxStream) handle(l *lane, kind byte, p []byte) error {
	st.mu.Lock()
	err := st.handleLocked(l, kind, p)
	over := st.over()
	again := err == nil && !over && !st.queued && st.something()
	if again {
		st.queued = true
	}
	ctl := !over && (st.movedDue || st.windowDue)
	to, bulk := st.lane, st.pace.bulk
	st.mu.Unlock()
	if over {
		st.s.remove(st)
	}
	if again {
		to.push(st, bulk)
	}
	if again {
		to.kick()
	}
	if ctl {
		st.sendControl()
	}
	return err
}

func (st *muxStream) handleLocked(l *lane, kind byte, p []byte) error {
	st.known = true
	switch kind {
	case frameWindow:
		if limit := binary.BigEndian.Uint64(p); limit < 1<<62 {
			st.limit = max(st.limit, int64(limit))
			st.charge()
			st.writable.Signal()
		}
	case frameFin:
		st.handleFin(l)
	case frameRst:
		code := binary.BigEndian.Uint32(p)
		if l == st.nextLane {
			st.earlyRst, st.code = true, code
			return nil
		}
		st.wasReset(code)
	case frameMove:
		at := binary.BigEndian.Uint64(p)
		if st.nextLane != nil || l == st.receiver.lane || at > 1<<62 || int64(at) < st.offset {
			return violation("stream %d cannot move at %d", st.id, at)
		}
		if l.dead.Load() {
			return net.ErrClosed // who takes leave of l must see all streams that are on it
		}
		st.nextLane, st.moveAt = l, int64(at)
		if st.offset == st.moveAt {
			st.follow()
		}
	case frameMoved:
		if int64(binary.BigEndian.Uint64(p)) == st.movedAt && !st.moving {
			st.prev = nil
		}
	}
	return nil
}

// handleFin needs the lock.
func (st *muxStream) handleFin(l *lane) {
	switch {
	case st.finished || st.ended: // it came behind a MOVE before, or nobody cares
	case l == st.receiver.lane:
		st.finished = true
		st.readable.Broadcast()
	case l == st.nextLane:
		st.earlyFin = true
	default: // MOVE has overtaken it, and it comes again behind MOVE
	}
}

// wasReset needs the lock.
func (st *muxStream) wasReset(code uint32) {
	var err error = &ResetError{code}
	if code == resetLost {
		err = lostConnection()
	}
	if st.werr == nil {
		st.werr = err
	}
	if st.rerr == nil && !st.finished {
		st.rerr = err
	}
	st.finSent, st.rst = true, false
	st.dropOut()
	st.wake()
}

// Read gives what has come.
func (st *muxStream) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	st.readOne.Lock()
	defer st.readOne.Unlock()
	st.mu.Lock()
	if err := st.await(); err != nil {
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

// await waits for data; it needs the lock.
func (st *muxStream) await() error {
	for {
		switch {
		case st.ended:
			return net.ErrClosed
		case st.reading.past:
			return os.ErrDeadlineExceeded
		case st.data.n > 0:
			return nil
		case st.finished:
			return io.EOF
		case st.rerr != nil:
			return st.rerr
		}
		st.readable.Wait()
	}
}

// CopyTo is described at Stream. It hands the received chunks to dst as they are.
func (st *muxStream) CopyTo(dst io.Writer, moved func(int)) (dstErr, err error) {
	st.readOne.Lock()
	defer st.readOne.Unlock()
	for {
		st.mu.Lock()
		if err := st.await(); err != nil {
			st.mu.Unlock()
			return nil, err
		}
		c := st.data.pop()
		st.mu.Unlock()
		n := c.len()
		wrote, dstErr := dst.Write(c.b[c.r:c.w])
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
	now := st.s.now()
	st.s.budget.unread.Add(-int64(n))
	room := int64(0)
	if st.s.budget.unread.Load() < st.s.budget.most/2 {
		room = mostGrowth - st.s.growth.Load()
	}
	st.mu.Lock()
	grant, reserve := st.window.consume(int64(n), now, st.s.trip(), room)
	due := grant > 0 && !st.ended && !st.finished && st.rerr == nil
	if due {
		st.windowDue = true
	}
	if st.ended || st.rerr != nil {
		reserve += st.window.drop()
	}
	grown, full := st.window.reserved > 0, st.window.full
	st.mu.Unlock()
	if full {
		st.s.measure(now)
	}
	if reserve != 0 {
		st.s.growth.Add(reserve)
	}
	if grown {
		st.s.watch(st)
	}
	if due {
		st.sendControl()
	}
}

// sendControl queues the stream's WINDOW and MOVED and sends.
func (st *muxStream) sendControl() {
	for {
		st.mu.Lock()
		if st.ctlLane != nil {
			l := st.ctlLane
			st.mu.Unlock()
			l.kick()
			return
		}
		l := st.lane
		st.ctlLane = l
		st.mu.Unlock()
		if l.pushControl(st) {
			l.kick()
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
	if st.over() {
		return b // its peer has forgotten it
	}
	if st.windowDue {
		st.windowDue = false
		b = binary.BigEndian.AppendUint64(appendHeader(b, frameWindow, 8, st.id), uint64(st.window.granted))
	}
	if st.movedDue {
		st.movedDue = false
		b = binary.BigEndian.AppendUint64(appendHeader(b, frameMoved, 8, st.id), uint64(st.switched))
	}
	return b
}

// forget gives up what was not read. It needs the lock.
func (st *muxStream) forget() chunkList {
	all := st.data
	st.data = chunkList{}
	all.join(&st.early)
	return all
}

// forgetEarly gives up what will never be in order. It needs the lock.
func (st *muxStream) forgetEarly() chunkList {
	all := st.early
	st.early = chunkList{}
	return all
}

// repeat sends WINDOW and MOVED again after the loss of a connection.
func (st *muxStream) repeat(gone *lane) {
	st.mu.Lock()
	st.windowDue = st.window.granted > st.window.least && !st.finished && !st.ended
	st.movedDue = st.switched >= 0
	if st.ctlLane == gone {
		st.ctlLane = nil
	}
	due := st.windowDue || st.movedDue
	st.mu.Unlock()
	if due {
		st.sendControl()
	}
}

// rest shrinks an idle window.
func (st *muxStream) rest(now time.Duration) (reserve int64, grown, bulk bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	reserve = st.window.rest(now)
	st.pace.leak(now)
	return reserve, st.window.reserved > 0, st.pace.bulk
}
