// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"sync"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/mesh/relayproto"
)

// queue is what waits to be written to one node. Its buffers are of the relay's pool:
// who has nothing to get holds none.
type queue struct {
	pool *sync.Pool

	mu     sync.Mutex
	wait   *pile         // nil: nothing
	held   int           // bytes that the writer has taken and not written
	wake   chan struct{} // one place: there is something to write, or the end
	closed bool
}

// pile is a buffer of frames.
type pile struct{ b []byte }

func newPool() *sync.Pool { return &sync.Pool{New: func() any { return &pile{} }} }

func newQueue(pool *sync.Pool) *queue { return &queue{pool: pool, wake: make(chan struct{}, 1)} }

// put appends a frame of the size if it fits.
func (q *queue) put(frame func([]byte) []byte, size int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.room(size) {
		return false
	}
	q.wait.b = frame(q.wait.b)
	q.ring()
	return true
}

// packet appends a packet if it fits. The writer is not told: one ring is enough for all that
// came in one read.
func (q *queue) packet(from string, datagram []byte) bool {
	size := relayproto.PacketSize(from, datagram)
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.room(size) {
		return false
	}
	q.wait.b = relayproto.AppendPacket(q.wait.b, from, datagram)
	return true
}

// room sees to a buffer if there is room. It needs the lock.
func (q *queue) room(size int) bool {
	if q.closed || q.length()+q.held+size > limit.RelayQueue {
		return false
	}
	q.fetch()
	return true
}

func (q *queue) fetch() {
	if q.wait == nil {
		q.wait, _ = q.pool.Get().(*pile)
	}
}

func (q *queue) length() int {
	if q.wait == nil {
		return 0
	}
	return len(q.wait.b)
}

func (q *queue) ring() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// take waits for what is to be written; false at the end, when nothing is left.
func (q *queue) take() (*pile, bool) {
	for {
		q.mu.Lock()
		p, closed := q.wait, q.closed
		q.wait, q.held = nil, 0
		if p != nil {
			q.held = len(p.b)
		}
		q.mu.Unlock()
		if p != nil {
			return p, true
		}
		if closed {
			return nil, false
		}
		<-q.wake
	}
}

// give takes a buffer back that was written.
func (q *queue) give(p *pile) {
	p.b = p.b[:0]
	q.pool.Put(p)
}

// wrote notes bytes that the writer has got rid of.
func (q *queue) wrote(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.held -= n
}

// close lets the writer end when it has written what waits, and last after it.
func (q *queue) close(last []byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closed && len(last) > 0 {
		q.fetch()
		q.wait.b = append(q.wait.b, last...)
	}
	q.closed = true
	q.ring()
}

func (q *queue) waiting() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return int64(q.length() + q.held)
}
