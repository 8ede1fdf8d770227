// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tombolo-io/tombolo/internal/fault"
)

// lane is one connection of a session. Whoever has something to send puts it
// into the lane's queues; whoever then finds nobody sending takes the turn and
// sends for all, without blocking. Where the link takes no more, a goroutine of
// the lane goes on with the turn and ends when nothing is left. One goroutine
// reads for as long as the connection lives.
type lane struct {
	s    *muxSession
	conn net.Conn
	sock *socket // below TLS; nil if the caller did not Wrap

	in, out, last atomic.Int64 // bytes, bytes, newest byte on the session's clock
	dead          atomic.Bool

	mu     sync.Mutex
	turn   bool        // somebody sends
	raw    []byte      // encoded control frames
	pong   [8]byte     // to be answered, if due
	due    bool        // a pong is due
	ctl    streamQueue // streams with WINDOW or MOVED
	fresh  streamQueue // interactive streams with something to send
	old    streamQueue // bulk streams with something to send
	ending bool        // to be closed when nothing is left to send
	failed bool
	why    error // of failed
	buried bool  // the session knows

	// Of the owner of the turn.
	round uint32
	batch *batch

	// Of the session, under its lock.
	bulk           int // our bulk directions
	born           time.Duration
	needed         time.Duration // when one was last here, or the peer's were
	counted        int64         // in at the last tick
	pinged         time.Duration
	unheard        time.Duration // the first PING since the newest byte came; 0: none
	leaving        bool          // no direction of ours shall come here any more
	weLeft, heLeft bool          // LEAVE sent, received

	// Of the reader.
	head    [headerSize]byte
	payload [16]byte
	scratch []byte
}

// inlineRounds is how many writes the taker of a turn makes for others before a
// goroutine of the lane goes on.
const inlineRounds = 2

// scratchSize bounds the payloads that are copied behind others of their stream
// instead of getting a chunk of their own.
const scratchSize = 2 << 10

func newLane(s *muxSession, conn net.Conn) *lane {
	l := &lane{s: s, conn: conn, sock: socketOf(conn), scratch: make([]byte, scratchSize)}
	if l.sock != nil && l.sock.raw == nil {
		l.sock = nil
	}
	if l.sock != nil {
		l.sock.collect()
	}
	l.last.Store(int64(s.now()))
	l.born = s.now()
	l.needed = l.born
	return l
}

// batch is what one turn writes at once: pieces of small, and frames that lie in
// their stream's chunk.
type batch struct {
	small []byte
	segs  []segment
	size  int
	out   []byte // for the socket
}

type segment struct {
	bytes   []byte // a frame in a chunk; nil for small[from:to]
	from    int
	to      int
	recycle *chunk // to the pool once written
}

const smallSize = 16 << 10

// mostTake is the room in small that any stream may need: OPEN, MOVE, one small
// DATA, FIN, RST.
const mostTake = 16 + 16 + headerSize + smallFrame + 8 + 12

func newBatch() *batch {
	return &batch{small: make([]byte, 0, smallSize), out: make([]byte, 0, batchSize+4<<10)}
}

func (b *batch) full() bool {
	return b.size >= batchSize || cap(b.small)-len(b.small) < mostTake
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

// push queues a stream that has something to send.
func (l *lane) push(st *muxStream, bulk bool) {
	l.mu.Lock()
	if bulk {
		l.old.push(st)
	} else {
		l.fresh.push(st)
	}
	l.mu.Unlock()
}

// pushControl queues a stream that has WINDOW or MOVED to send; false if the
// connection is lost.
func (l *lane) pushControl(st *muxStream) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed {
		return false
	}
	l.ctl.pushControl(st)
	return true
}

// control queues an encoded frame; false if too many wait.
func (l *lane) control(frame []byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.raw)+len(frame) > mostControl {
		return false
	}
	l.raw = append(l.raw, frame...)
	return true
}

// kick sends what is queued unless somebody does so already.
func (l *lane) kick() {
	l.mu.Lock()
	if l.turn || l.failed || !l.something() {
		l.mu.Unlock()
		return
	}
	l.turn = true
	l.mu.Unlock()
	if l.sock == nil {
		go l.send(false)
		return
	}
	l.send(true)
}

// something needs the lock.
func (l *lane) something() bool {
	return len(l.raw) > 0 || l.due || l.ctl.head != nil || l.fresh.head != nil || l.old.head != nil ||
		l.sock != nil && l.sock.pending()
}

// send is the turn. Inline it never blocks.
func (l *lane) send(inline bool) {
	for rounds := 0; ; rounds++ {
		if inline && rounds == inlineRounds {
			go l.send(false)
			return
		}
		if !l.gather() {
			return
		}
		err := l.write()
		if err == nil && l.sock != nil {
			done := false
			if done, err = l.sock.tryFlush(); err == nil && !done {
				if inline {
					go l.finish()
					return
				}
				err = l.sock.flush()
			}
		}
		if err != nil {
			l.lose(err, true)
			return
		}
	}
}

// finish goes on with a turn whose last write did not fit.
func (l *lane) finish() {
	if err := l.sock.flush(); err != nil {
		l.lose(err, true)
		return
	}
	l.send(false)
}

// gather fills the batch, or ends the turn if there is nothing.
func (l *lane) gather() bool {
	l.mu.Lock()
	if l.failed || !l.something() {
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
	b := l.begin()
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

// begin makes the batch ready. It needs the lock.
func (l *lane) begin() *batch {
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
	b.small, b.segs, b.size = b.small[:0], b.segs[:0], 0
	return b
}

// kickLater is kick for the owner of another lane's turn, who must not work for both.
func (l *lane) kickLater() {
	l.mu.Lock()
	start := !l.turn && !l.failed && l.something()
	if start {
		l.turn = true
	}
	l.mu.Unlock()
	if start {
		go l.send(false)
	}
}

// gatherControl takes WINDOW and MOVED of the streams; what does not fit waits.
func (l *lane) gatherControl(b *batch, ctl streamQueue) {
	from := len(b.small)
	for st := ctl.popControl(); st != nil; st = ctl.popControl() {
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
}

// pop takes the next stream, each at most once in a round. alone says that no
// other waits.
func (l *lane) pop(b *batch) (st *muxStream, alone bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := &l.fresh
	if q.head == nil || q.head.round == l.round || b.size > batchSize/2 && l.old.head != nil {
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

// Read reads from the connection and remembers that the peer lives.
func (l *lane) Read(p []byte) (int, error) {
	n, err := l.conn.Read(p)
	if n > 0 {
		l.in.Add(int64(n))
		l.last.Store(int64(l.s.now()))
	}
	return n, err
}

// serve reads frames until the connection ends.
func (l *lane) serve() {
	for {
		err := l.frame()
		if err != nil {
			if fault.Has(err, fault.CodeFrameInvalid) && l.sock != nil { // tell why, without blocking
				l.control(binary.BigEndian.AppendUint32(appendHeader(nil, frameGoAway, 4, 0), goAwayViolation))
				l.kick()
			}
			l.lose(err, false)
			return
		}
		if l.sock != nil && l.sock.pending() { // TLS answered by itself
			l.kick()
		}
	}
}

func (l *lane) frame() error {
	if _, err := io.ReadFull(l, l.head[:]); err != nil {
		if err == io.ErrUnexpectedEOF {
			err = errors.New("the connection ended within a frame")
		}
		return err
	}
	h, known, err := parseHeader(&l.head)
	if err != nil {
		return err
	}
	if !known {
		return l.skip(h.length)
	}
	if h.kind == frameData {
		st := l.s.find(h.id)
		if st == nil {
			return l.skip(h.length)
		}
		return st.receive(l, h.length)
	}
	p := l.payload[:min(h.length, shapes()[h.kind].least)]
	if _, err := io.ReadFull(l, p); err != nil {
		return err
	}
	if err := l.skip(h.length - len(p)); err != nil {
		return err
	}
	if h.id == 0 {
		return l.sessionFrame(h.kind, p)
	}
	if h.kind == frameOpen {
		return l.s.opened(l, h.id, binary.BigEndian.Uint32(p), binary.BigEndian.Uint32(p[4:]))
	}
	st := l.s.find(h.id)
	if st == nil {
		return nil
	}
	return st.handle(l, h.kind, p)
}

func (l *lane) sessionFrame(kind byte, p []byte) error {
	switch kind {
	case frameWindow:
		l.s.assume(binary.BigEndian.Uint64(p))
	case framePing:
		l.mu.Lock()
		l.pong, l.due = [8]byte(p), true
		l.mu.Unlock()
		l.kick()
	case framePong:
		l.s.ponged(time.Duration(binary.BigEndian.Uint64(p)))
	case frameGoAway:
		return l.s.wentAway(binary.BigEndian.Uint32(p))
	case frameLeave:
		l.s.left(l)
	case frameConnections:
		l.s.asked(int(binary.BigEndian.Uint32(p)))
	}
	return nil
}

// skip reads and forgets n bytes.
func (l *lane) skip(n int) error {
	for n > 0 {
		got, err := l.Read(l.scratch[:min(n, len(l.scratch))])
		if err != nil {
			return err
		}
		n -= got
	}
	return nil
}

// retire closes a connection that both ends have left, behind what is under way.
func (l *lane) retire() {
	l.mu.Lock()
	l.ending = true
	idle := !l.turn && !l.something()
	l.mu.Unlock()
	if idle {
		l.lose(net.ErrClosed, false)
	} else {
		l.kick()
	}
}

// ping sends a PING that carries the time.
func (l *lane) ping() {
	frame := appendHeader(nil, framePing, 8, 0)
	if l.control(binary.BigEndian.AppendUint64(frame, uint64(l.s.now()))) {
		l.kick()
	}
}

// lose ends a connection that failed. The session takes leave of it only when
// nobody has its turn any more: who has it still works on its queues.
func (l *lane) lose(err error, mine bool) {
	l.mu.Lock()
	if l.why == nil {
		l.why = err
	}
	l.failed = true
	if mine {
		l.turn = false
	}
	bury := !l.turn && !l.buried
	l.buried = l.buried || bury
	why := l.why
	l.mu.Unlock()
	l.dead.Store(true)
	if c, ok := l.conn.(interface{ NetConn() net.Conn }); ok {
		c.NetConn().Close() // below TLS: its close_notify would wait for the link
	} else {
		l.conn.Close()
	}
	if bury {
		l.s.lost(l, why)
	}
}
