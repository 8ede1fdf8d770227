// SPDX-License-Identifier: Apache-2.0

package carrier

import (
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
	s     *muxSession
	id    uint32
	round uint32 // of the owner of the turn

	writing sync.Mutex // one writer at a time

	mu        sync.Mutex
	readable  cond
	writable  cond
	deadlines *deadlines // nil: none

	// Sending.
	out        chunkList // bytes to be sent
	limit      int64     // offset up to which the peer lets us send
	sent       int64     // offset
	lane       *lane     // our direction travels here
	want       *lane     // and is to move here
	prev       *lane     // bytes may still be under way here; nil once the peer said MOVED
	movedAt    int64     // offset of the newest
	queued     bool      // in a lane's queue for sending
	opening    bool      // OPEN is due
	known      bool      // the peer has our OPEN, so a MOVE cannot overtake it
	moving     bool      // MOVE is due
	fin, rst   bool      // due
	outs       uint8     // chunks of out
	greeting   uint8     // small frames sent, up to greetingFrames
	background bool      // never counts as interactive
	drop       bool      // RST does not wait for bytes without credit
	finSent    bool
	windowDue  bool
	movedDue   bool
	starving   bool // in the list of starved
	ended      bool // by our side: Close or Reset
	finished   bool // FIN came in order
	rstCode    uint32
	moves      uint32 // number of MOVEs sent
	charged    int32  // of out, in the session's count of what waits
	deficit    int32
	pace       pace
	placed     time.Duration // when its lane was chosen
	werr       error         // why nothing can be sent
	ctlLane    *lane         // whose queue for control frames it is in

	receiver

	next, ctlNext *muxStream // of queues

	// Of the session, under its lock.
	counted *lane // where it counts as bulk
}

func newMuxStream(s *muxSession, id uint32, l *lane, send, receive int64) *muxStream {
	st := &muxStream{s: s, id: id, lane: l, want: l, limit: send}
	st.receiver.lane, st.window = l, newWindow(receive)
	st.window.epoch = s.now()
	return st
}

// Write copies b and returns once all of it is queued, with at most mostOut pieces
// unsent.
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
		return c.b[headerSize : headerSize+sendPayload]
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
			// A silent source holds a small buffer, one that flows a large one.
			c = pools.get(size)
			if n, srcErr = src.Read(c.b[headerSize:size]); n == 0 {
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

// room waits until there is room for one more piece.
func (st *muxStream) room() error {
	st.mu.Lock()
	defer st.mu.Unlock()
	for {
		err := st.writeErrorLocked()
		switch {
		case err != nil:
			return err
		case st.deadlines.write().over():
			return os.ErrDeadlineExceeded
		case (st.outs == 0 || st.pace.bulk && st.outs < mostOut) && !st.s.crowded(st):
			return nil
		}
		st.waitLocked(&st.writable, st.deadlines.write())
	}
}

// submit hands c to the lane and waits until the peer has given credit for all of it. The
// caller has waited for room and is the only writer. accepted is less than all only with
// an error.
func (st *muxStream) submit(c *chunk) (accepted int, err error) {
	now, n := st.s.now(), c.len()
	st.mu.Lock()
	if err := st.writeErrorLocked(); err != nil {
		st.mu.Unlock()
		st.s.budget.pools.put(c)
		return 0, err
	}
	st.out.append(c)
	st.outs++
	end := st.sent + st.out.n
	st.chargeLocked()
	choose := st.pacedLocked(n, now)
	bulk, l := st.pace.bulk, st.lane
	talks := st.talksLocked(n, now)
	st.mu.Unlock()

	if talks {
		st.s.busy.note(now)
		l.busy.note(now)
	}
	if choose {
		st.s.place(st, bulk, now)
	}
	st.send()
	return st.credited(c, n, end)
}

// talksLocked reports whether a frame of n bytes, which is already counted, shows
// interactive traffic: somebody waits for an answer.
func (st *muxStream) talksLocked(n int, now time.Duration) bool {
	if st.background || n >= smallFrame {
		return false
	}
	if st.greeting < greetingFrames {
		st.greeting++
		return false
	}
	return !st.pace.bulk && st.pace.little(now) && st.heard.little(now)
}

// pacedLocked counts n bytes to be sent, and reports whether a connection must be chosen
// again.
func (st *muxStream) pacedLocked(n int, now time.Duration) (choose bool) {
	was := st.pace.bulk
	st.pace.sent(n, now)
	choose = st.pace.bulk != was || st.s.several.Load() && now-st.placed > placeEvery
	if choose {
		st.placed = now
	}
	return choose
}

// credited waits until the peer has given credit for c, whose n bytes end at the
// offset end. Bytes that it does not count are never sent.
func (st *muxStream) credited(c *chunk, n int, end int64) (accepted int, err error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	for st.sent+st.out.n >= end && end > st.limit {
		if err = st.writeErrorLocked(); err == nil && st.deadlines.write().over() {
			err = os.ErrDeadlineExceeded
		}
		if err != nil {
			kept := max(st.limit, st.sent)
			if st.out.trim(end - kept); c.len() == 0 {
				st.outs--
			}
			st.chargeLocked()
			return n - int(end-kept), err
		}
		st.waitLocked(&st.writable, st.deadlines.write())
	}
	if st.sent+st.out.n < end { // dropped meanwhile
		return max(0, n-int(end-st.sent)), st.writeErrorLocked()
	}
	return n, nil
}

// writeErrorLocked returns why nothing can be written, or nil.
func (st *muxStream) writeErrorLocked() error {
	if st.ended || st.fin {
		return net.ErrClosed
	}
	return st.werr
}

// mostOut is how many pieces (of at most sendPayload) a bulk stream may have queued, so
// that its writer is woken for several at once; any other stream has one.
const mostOut = 4

// greetingFrames is how many small frames even a transfer starts with: the dial request,
// handshakes, the request. Large ones do not count.
const greetingFrames = 4

// placeEvery is how often the connection of a stream that flows is reconsidered.
const placeEvery = 100 * time.Millisecond

// send queues the stream for sending and sends.
func (st *muxStream) send() {
	st.mu.Lock()
	l, bulk, ok := st.lane, st.pace.bulk, !st.queued && st.somethingLocked()
	if ok {
		st.queued = true
	}
	st.mu.Unlock()
	if !ok {
		l.kick()
		return
	}
	l.push(st, bulk)
	l.kickFor(st.id)
}

// Background marks a stream whose frames nobody waits for, however small they are: it does
// not keep bulk traffic away from its connection. The control stream is one.
func (st *muxStream) Background() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.background = true
}

func (st *muxStream) LocalAddr() net.Addr { return st.s.localAddr() }

func (st *muxStream) RemoteAddr() net.Addr { return st.s.RemoteAddr() }
