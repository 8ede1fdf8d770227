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

// muxStream is one stream. Its sending side:
//
//	Write ── copies into out, waits while out is taken ──► lane's queue
//	the owner of a lane's turn ── take: OPEN, MOVE, DATA within credit, FIN, RST
//
// The receiving side is in mux_receive.go. No lock is taken while mu is held.
type muxStream struct {
	s  *muxSession
	id uint32

	writing sync.Mutex // one writer at a time

	mu       sync.Mutex
	readable sync.Cond
	writable sync.Cond
	reading  deadline
	sending  deadline
	ended    bool // by our application: Close or Reset

	// Sending.
	out       *chunk // waits to be sent
	limit     int64  // offset up to which the peer lets us send
	sent      int64  // offset
	lane      *lane  // our direction travels here
	want      *lane  // and shall travel here
	prev      *lane  // bytes may still be under way here; nil once the peer said MOVED
	movedAt   int64  // offset of our newest MOVE
	queued    bool   // in a lane's queue for sending
	opening   bool   // OPEN is due
	known     bool   // the peer has our OPEN, so a MOVE cannot overtake it
	moving    bool   // MOVE is due
	fin, rst  bool   // due
	drop      bool   // RST does not wait for what has no credit
	finSent   bool
	rstCode   uint32
	charged   int64 // of out, in the session's count of what waits
	deficit   int
	pace      pace
	placed    time.Duration // when its lane was chosen
	werr      error         // why nothing can be sent any more
	ctlLane   *lane         // in whose queue it is for control frames
	windowDue bool
	movedDue  bool

	receiver

	// Of queues and of the owner of a turn.
	next, ctlNext *muxStream
	round         uint32

	// Of the session, under its lock.
	counted *lane // where it counts as bulk
}

func newMuxStream(s *muxSession, id uint32, l *lane, send, receive int64) *muxStream {
	st := &muxStream{s: s, id: id, lane: l, want: l, limit: send}
	st.receiver.lane, st.window, st.switched = l, newWindow(receive), -1
	st.window.epoch = s.now()
	st.readable.L, st.writable.L = &st.mu, &st.mu
	return st
}

// Write copies b and returns when all of it waits to be sent, at most one frame
// of it unsent.
func (st *muxStream) Write(b []byte) (n int, err error) {
	st.writing.Lock()
	defer st.writing.Unlock()
	for n < len(b) || n == 0 {
		if err := st.room(); err != nil {
			return n, err
		}
		if len(b) == 0 {
			return 0, nil
		}
		piece := b[n:min(len(b), n+sendPayload)]
		c := st.s.budget.pools.get(headerSize + len(piece))
		c.r = headerSize
		c.w = c.r + copy(c.b[c.r:], piece)
		accepted, err := st.submit(c)
		n += accepted
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// CopyFrom is described at Stream.
func (st *muxStream) CopyFrom(src io.Reader, moved func(int)) (srcErr, err error) {
	st.writing.Lock()
	defer st.writing.Unlock()
	pools := &st.s.budget.pools
	var c *chunk
	take := func() []byte {
		c = pools.get(headerSize + sendPayload)
		return c.b[headerSize:]
	}
	give := func() {
		pools.put(c)
		c = nil // the closures would keep it alive while src is silent
	}
	patient, _ := src.(Patient)
	for size := smallFrame; ; {
		if err := st.room(); err != nil {
			return nil, err
		}
		var n int
		if patient != nil {
			n, srcErr = patient.ReadWhenReady(take, give)
		} else {
			// A source that is silent holds a small buffer, one in flow a large one.
			c = pools.get(size)
			if n, srcErr = src.Read(c.b[headerSize:]); n == 0 {
				give()
			}
			if n == size-headerSize {
				size = headerSize + sendPayload
			} else if n < smallFrame/2 {
				size = smallFrame
			}
		}
		if n > 0 {
			c.r, c.w = headerSize, headerSize+n
			accepted, err := st.submit(c)
			c = nil // it belongs to the mux now
			if moved != nil && accepted > 0 {
				moved(accepted)
			}
			if err != nil {
				return nil, err
			}
		}
		if srcErr != nil {
			return srcErr, nil
		}
	}
}

// ReadFrom implements io.ReaderFrom.
func (st *muxStream) ReadFrom(src io.Reader) (n int64, err error) {
	srcErr, err := st.CopyFrom(src, func(m int) { n += int64(m) })
	if err == nil && srcErr != io.EOF {
		err = srcErr
	}
	return n, err
}

// room waits until the last frame has been taken.
func (st *muxStream) room() error {
	st.mu.Lock()
	defer st.mu.Unlock()
	for {
		err := st.writeError()
		switch {
		case err != nil:
			return err
		case st.sending.past:
			return os.ErrDeadlineExceeded
		case st.out == nil && !st.s.crowded(st):
			return nil
		}
		st.writable.Wait()
	}
}

// submit hands c to the lane and waits until the peer has given credit for all
// of it; room was made before, and no other writer is here. accepted is less
// than all only with an error.
func (st *muxStream) submit(c *chunk) (accepted int, err error) {
	now, n := st.s.now(), c.len()
	st.mu.Lock()
	if err := st.writeError(); err != nil {
		st.mu.Unlock()
		st.s.budget.pools.put(c)
		return 0, err
	}
	st.out = c
	end := st.sent + int64(n)
	st.charge()
	was := st.pace.bulk
	st.pace.sent(n, now)
	bulk := st.pace.bulk
	choose := bulk != was || st.s.several.Load() && now-st.placed > placeEvery
	if choose {
		st.placed = now
	}
	st.mu.Unlock()

	if !bulk {
		st.s.busy.note(now)
	}
	if choose {
		st.s.place(st, bulk, now)
	}
	st.send()
	return st.credited(c, n, end)
}

// credited waits until the peer has given credit for c, whose n bytes end at the
// offset end. What it does not count is never sent.
func (st *muxStream) credited(c *chunk, n int, end int64) (accepted int, err error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	for st.out == c && end > st.limit {
		if err = st.writeError(); err == nil && st.sending.past {
			err = os.ErrDeadlineExceeded
		}
		if err != nil {
			kept := max(st.limit, st.sent)
			c.w -= int(end - kept)
			if c.len() == 0 {
				st.dropOut()
			}
			return n - int(end-kept), err
		}
		st.writable.Wait()
	}
	if st.out != c && st.sent < end { // given up meanwhile
		return n - int(end-st.sent), st.writeError()
	}
	return n, nil
}

// writeError is why nothing can be written any more. It needs the lock.
func (st *muxStream) writeError() error {
	if st.ended || st.fin {
		return net.ErrClosed
	}
	return st.werr
}

// charge counts what waits and may be sent. It needs the lock.
func (st *muxStream) charge() {
	may := int64(0)
	if st.out != nil {
		may = max(0, min(int64(st.out.len()), st.limit-st.sent))
	}
	st.s.queued.Add(may - st.charged)
	st.charged = may
}

// placeEvery is how often a stream in flow is placed anew.
const placeEvery = 100 * time.Millisecond

// send queues the stream for sending and sends.
func (st *muxStream) send() {
	st.mu.Lock()
	l, bulk, ok := st.lane, st.pace.bulk, !st.queued && st.something()
	if ok {
		st.queued = true
	}
	st.mu.Unlock()
	if ok {
		l.push(st, bulk)
	}
	l.kick()
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
	if st.want.dead.Load() {
		st.want = st.lane
	}
	if st.mayMove() {
		st.prev, st.lane, st.moving = st.lane, st.want, true
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
	st.writable.Broadcast()
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
	st.ended = true
	st.reading.stop()
	st.sending.stop()
	freed := st.forget()
	lost := st.werr != nil
	if !lost {
		st.fin = true
		if !st.finished {
			st.rst, st.rstCode = true, resetClosed
		}
	} else {
		st.finSent = true
	}
	st.wake()
	over := st.over()
	st.mu.Unlock()
	st.s.free(freed)
	if over {
		st.s.remove(st)
		return nil
	}
	st.send()
	return nil
}

// Reset ends both directions at once. What has no credit is not sent any more.
func (st *muxStream) Reset(code uint32) error {
	st.mu.Lock()
	st.ended = true
	st.reading.stop()
	st.sending.stop()
	freed := st.forget()
	if st.werr == nil && !(st.finSent && st.finished) {
		st.drop, st.rst, st.rstCode = true, true, code
	}
	st.wake()
	over := st.over()
	st.mu.Unlock()
	st.s.free(freed)
	if over {
		st.s.remove(st)
		return nil
	}
	st.send()
	return nil
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
	st.dropOut()
	freed := st.forgetEarly()
	st.wake()
	st.mu.Unlock()
	st.s.free(freed)
}

// wake needs the lock.
func (st *muxStream) wake() {
	st.readable.Broadcast()
	st.writable.Broadcast()
}

func (st *muxStream) LocalAddr() net.Addr  { return st.s.localAddr() }
func (st *muxStream) RemoteAddr() net.Addr { return st.s.RemoteAddr() }

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
