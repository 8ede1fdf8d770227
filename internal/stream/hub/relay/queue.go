// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"sync"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/mesh/relayproto"
)

// queue is what waits to be written to one node. Its buffers are from the relay's pool:
// an idle node holds none.
type queue struct {
	pool *sync.Pool

	mu     sync.Mutex
	wait   *buffer       // nil: nothing
	held   int           // bytes that the writer has taken and not written
	wake   chan struct{} // one place: there is something to write, or the end
	closed bool
}

// buffer is a buffer of frames.
type buffer struct{ b []byte }

func newPool() *sync.Pool { return &sync.Pool{New: func() any { return &buffer{} }} }

func newQueue(pool *sync.Pool) *queue { return &queue{pool: pool, wake: make(chan struct{}, 1)} }

// put appends a frame of the size if it fits.
func (q *queue) put(frame func([]byte) []byte, size int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.roomLocked(size) {
		return false
	}
	q.wait.b = frame(q.wait.b)
	q.signal()
	return true
}

// putPacket appends a packet if it fits. It does not wake the writer: once is enough for all that
// came in one read.
func (q *queue) putPacket(from string, datagram []byte) bool {
	size := relayproto.PacketSize(from, datagram)
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.roomLocked(size) {
		return false
	}
	q.wait.b = relayproto.AppendPacket(q.wait.b, from, datagram)
	return true
}

// roomLocked says whether there is room, and sees to a buffer if there is.
func (q *queue) roomLocked(size int) bool {
	if q.closed || q.lengthLocked()+q.held+size > limit.RelayQueue {
		return false
	}
	q.fetchLocked()
	return true
}

func (q *queue) fetchLocked() {
	if q.wait == nil {
		q.wait, _ = q.pool.Get().(*buffer)
	}
}

func (q *queue) lengthLocked() int {
	if q.wait == nil {
		return 0
	}
	return len(q.wait.b)
}

func (q *queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// take waits for what is to be written; false at the end, when nothing is left.
func (q *queue) take() (*buffer, bool) {
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
func (q *queue) give(p *buffer) {
	p.b = p.b[:0]
	q.pool.Put(p)
}

// written notes bytes that the writer has got rid of.
func (q *queue) written(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.held -= n
}

// close lets the writer end when it has written what waits, and last after it.
func (q *queue) close(last []byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closed && len(last) > 0 {
		q.fetchLocked()
		q.wait.b = append(q.wait.b, last...)
	}
	q.closed = true
	q.signal()
}

func (q *queue) waiting() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return int64(q.lengthLocked() + q.held)
}
