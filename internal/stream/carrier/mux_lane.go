// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"encoding/binary"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// lane is one connection of a session. Whoever has something to send puts it
// into the lane's queues; a goroutine that then finds nobody sending takes the turn and
// sends for all, without blocking. When the link takes no more, a goroutine of the
// lane continues the turn and ends when nothing is left. One goroutine
// reads for as long as the connection lives.
type lane struct {
	s    *muxSession
	conn net.Conn
	sock *socket // below TLS; nil if the caller did not Wrap

	in, out, last atomic.Int64 // bytes, bytes, newest byte on the session's clock
	busy          activity     // of interactive streams that send here
	dead          atomic.Bool
	shut          atomic.Bool // nothing moves to it any more: leaving or heLeft

	mu     sync.Mutex
	turn   bool        // somebody sends
	raw    []byte      // encoded control frames
	pong   [8]byte     // to be answered, if due
	due    bool        // a pong is due
	ctl    streamQueue // streams with WINDOW or MOVED
	fresh  streamQueue // interactive streams with something to send
	old    streamQueue // bulk streams with something to send
	newest uint32      // the stream that queued the newest frame; 0: none did
	ending bool        // to be closed when nothing is left to send
	noWait bool        // and as soon as the link does not take it at once
	waits  bool        // the owner of the turn waits for the link
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

// say sends frames of which there cannot be too many.
func (l *lane) say(frames []byte) {
	l.mu.Lock()
	l.raw = append(l.raw, frames...)
	l.mu.Unlock()
	l.kick()
}

// kick sends what is queued unless somebody does so already.
func (l *lane) kick() { l.kickFor(0) }

// kickFor is kick for a frame that stream id has queued, 0 for none. Those who are
// about to send may do so first if there are such: one write for many.
func (l *lane) kickFor(id uint32) {
	l.mu.Lock()
	together := l.togetherLocked(id)
	if l.turn || l.failed || !l.somethingLocked() {
		l.mu.Unlock()
		return
	}
	l.turn = true
	if l.sock == nil {
		l.s.owned.Add(1)
		l.mu.Unlock()
		go l.proceed()
		return
	}
	l.mu.Unlock()
	if together {
		runtime.Gosched()
	}
	l.send(true)
}

// togetherLocked says whether somebody else is likely to send as well: the frame before
// was another stream's. Who talks alone does not wait, nor does anybody where bulk
// does.
func (l *lane) togetherLocked(id uint32) bool {
	if id == 0 {
		return false
	}
	before := l.newest
	l.newest = id
	return before != 0 && before != id && l.old.head == nil
}

func (l *lane) somethingLocked() bool {
	return len(l.raw) > 0 || l.due || l.ctl.head != nil || l.fresh.head != nil || l.old.head != nil ||
		l.sock != nil && l.sock.pending()
}

// ping sends a PING that carries the time.
func (l *lane) ping() {
	frame := appendHeader(nil, framePing, 8, 0)
	if l.control(binary.BigEndian.AppendUint64(frame, uint64(l.s.now()))) {
		l.kick()
	}
}

// farewell ends the connection behind a last frame, but does not wait for the link.
func (l *lane) farewell(frame []byte) {
	l.mu.Lock()
	l.raw = append(l.raw, frame...)
	l.ending, l.noWait = true, true
	stuck := l.waits || l.sock == nil
	l.mu.Unlock()
	if stuck {
		l.lose(net.ErrClosed, false)
	} else {
		l.kick() // or the owner of the turn closes it
	}
}

// lose ends a connection that failed. The session removes it only once
// nobody has its turn: the owner of the turn still works on its queues.
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
