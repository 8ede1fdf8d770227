// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"encoding/binary"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// receiver is the receiving side of a stream, under the stream's lock. What the
// peer sends on the connection of its direction is stored in order; after a MOVE
// what comes on the next connection waits in early.
type receiver struct {
	window window
	heard  pace // what came lately
	data   chunkList
	offset int64 // bytes that came in order

	lane     *lane   // the peer's direction travels here
	coming   *coming // and will travel elsewhere; nil if it does not move
	switched int64   // how many MOVEs are done, for MOVED

	unread atomic.Int64                 // bytes that came and were not read
	tally  atomic.Pointer[atomic.Int64] // where they count as well

	direct *direct // a reader in CopyTo waits for data

	rerr    error // what readers get behind data
	readOne sync.Mutex
}

// coming is what comes behind a MOVE, before all has come that was sent before it.
type coming struct {
	lane  *lane
	at    int64 // the offset at which it begins
	early chunkList
	ahead int64 // bytes that came
	fin   bool
	rst   bool
	code  uint32 // of rst
}

// on says that the direction will travel on l. It may be nil.
func (m *coming) on(l *lane) bool { return m != nil && m.lane == l }

// receive reads n bytes of DATA from lane l and stores them.
func (st *muxStream) receive(l *lane, n int) error {
	if n <= scratchSize {
		p := l.scratch[:n]
		if _, err := io.ReadFull(l, p); err != nil {
			return err
		}
		d, followed, err := st.store(l, p, nil)
		if d != nil {
			st.deliver(d, p, nil)
		}
		return st.stored(followed, err)
	}
	for n > 0 {
		piece := min(n, 1<<mostChunk)
		c := st.s.budget.pools.get(piece)
		c.w = piece
		if _, err := io.ReadFull(l, c.b[:piece]); err != nil {
			return err
		}
		d, followed, err := st.store(l, nil, c)
		if d != nil {
			st.deliver(d, c.b[:piece], c)
		}
		if err := st.stored(followed, err); err != nil {
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
	over := st.overLocked()
	st.mu.Unlock()
	if over {
		st.s.remove(st)
	} else {
		st.sendControl((*lane).kick) // MOVED
	}
	return err
}

// store takes either small bytes, which it copies, or a chunk. followed says that
// the stream's direction has now come over from another connection.
func (st *muxStream) store(l *lane, small []byte, c *chunk) (d *direct, followed bool, err error) {
	n := int64(len(small))
	if c != nil {
		n = int64(c.len())
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.werr != nil && st.rerr != nil { // RST came, or is on its way to the peer
		st.s.budget.pools.put(c)
		return nil, false, nil
	}
	st.known = true
	st.heard.sent(int(n), time.Duration(l.last.Load()))
	to := &st.data
	switch {
	case !st.window.receive(n):
		return nil, false, violation("stream %d has more data than credit", st.id)
	case l == st.receiver.lane && st.finished, st.coming.on(l) && st.coming.fin:
		return nil, false, violation("stream %d has data behind its end", st.id)
	case l == st.receiver.lane:
		st.offset += n
		if st.coming != nil && st.offset > st.coming.at {
			return nil, false, violation("stream %d has data behind its move", st.id)
		}
	case st.coming.on(l):
		st.coming.ahead += n
		to = &st.coming.early
	default:
		return nil, false, violation("stream %d has data on a connection that is not its own", st.id)
	}
	if st.ended { // nobody reads, but its peer may still move it
		st.s.budget.pools.put(c)
	} else if d = st.direct; d != nil && to == &st.data && to.n == 0 && !d.busy && d.err == nil &&
		!st.deadlines.read().over() {
		d.busy = true
	} else {
		d = nil
		st.s.hold(n)
		st.count(n)
		if c == nil {
			c = st.behindLocked(to, small)
		}
		if c != nil {
			to.append(c)
		}
	}
	if followed = st.coming != nil && st.offset == st.coming.at; followed {
		st.followLocked()
	}
	if d == nil {
		st.readable.signal()
	}
	return d, followed, nil
}

// behindLocked copies small bytes behind the last chunk of the list where there is
// room, so that many small frames take no more memory than their bytes. It gives a new
// chunk if there is none.
func (st *muxStream) behindLocked(to *chunkList, small []byte) *chunk {
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

// followLocked makes the next connection the stream's.
func (st *muxStream) followLocked() {
	m := st.coming
	st.receiver.lane, st.coming = m.lane, nil
	st.switched++
	st.offset += m.ahead
	st.data.join(&m.early)
	st.movedDue = true
	if m.fin {
		st.finished = true
		st.readable.broadcast()
	}
	if m.rst {
		st.wasResetLocked(m.code)
	}
}

// handle takes the frames of a stream that carry no data.
func (st *muxStream) handle(l *lane, kind byte, p []byte) error {
	st.mu.Lock()
	err := st.handleLocked(l, kind, p)
	over := st.overLocked()
	again := err == nil && !over && !st.queued && st.somethingLocked()
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
		st.sendControl((*lane).kick)
	}
	return err
}

func (st *muxStream) handleLocked(l *lane, kind byte, p []byte) error {
	st.known = true
	switch kind {
	case frameWindow:
		if limit := binary.BigEndian.Uint64(p); limit < 1<<62 {
			st.limit = max(st.limit, int64(limit))
			st.chargeLocked()
			st.writable.signal()
		}
	case frameFin:
		st.handleFinLocked(l)
	case frameRst:
		code := binary.BigEndian.Uint32(p)
		if st.coming.on(l) {
			st.coming.rst, st.coming.code = true, code
			return nil
		}
		st.wasResetLocked(code)
	case frameMove:
		at := binary.BigEndian.Uint64(p)
		if st.coming != nil || l == st.receiver.lane || at > 1<<62 || int64(at) < st.offset {
			return violation("stream %d cannot move at %d", st.id, at)
		}
		if l.dead.Load() {
			return net.ErrClosed // who takes leave of l must see all streams that are on it
		}
		st.coming = &coming{lane: l, at: int64(at)}
		if st.offset == st.coming.at {
			st.followLocked()
		}
	case frameMoved:
		if binary.BigEndian.Uint64(p) == uint64(st.moves) && !st.moving {
			st.prev = nil
		}
	}
	return nil
}

func (st *muxStream) handleFinLocked(l *lane) {
	switch {
	case st.finished || st.ended: // it came behind a MOVE before, or nobody cares
	case l == st.receiver.lane:
		st.finished = true
		st.readable.broadcast()
	case st.coming.on(l):
		st.coming.fin = true
	default: // MOVE has overtaken it, and it comes again behind MOVE
	}
}

func (st *muxStream) wasResetLocked(code uint32) {
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
	st.dropOutLocked()
	st.wakeLocked()
}
