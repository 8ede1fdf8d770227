// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"sync"
	"sync/atomic"
)

// starved are the streams that want to send while too much waits already, in
// the order in which they came.
type starved struct {
	n  atomic.Int64
	mu sync.Mutex
	q  []*muxStream
}

// crowded says that a stream must wait, and remembers it, once. It is called with
// the stream's lock.
func (s *muxSession) crowded(st *muxStream) bool {
	if s.queued.Load() < mostQueued {
		return false
	}
	if !st.starving {
		st.starving = true
		s.starved.mu.Lock()
		s.starved.q = append(s.starved.q, st)
		s.starved.n.Store(int64(len(s.starved.q)))
		s.starved.mu.Unlock()
	}
	return s.queued.Load() >= mostQueued
}

// feed lets as many of the waiting streams go on as there is room for.
func (s *muxSession) feed() {
	if s.starved.n.Load() == 0 {
		return
	}
	room := (mostQueued - s.queued.Load()) / sendPayload
	for ; room > 0; room-- {
		s.starved.mu.Lock()
		if len(s.starved.q) == 0 {
			s.starved.q = nil
			s.starved.mu.Unlock()
			return
		}
		st := s.starved.q[0]
		s.starved.q = s.starved.q[1:]
		s.starved.n.Store(int64(len(s.starved.q)))
		s.starved.mu.Unlock()
		st.mu.Lock()
		st.starving = false
		st.writable.signal()
		st.mu.Unlock()
	}
}

// streamQueue is a list of streams through their own links: next for streams
// with something to send, ctlNext for those with control frames.
type streamQueue struct{ head, tail *muxStream }

func (q *streamQueue) push(st *muxStream) {
	st.next = nil
	if q.tail == nil {
		q.head = st
	} else {
		q.tail.next = st
	}
	q.tail = st
}

func (q *streamQueue) pop() *muxStream {
	st := q.head
	if st == nil {
		return nil
	}
	if q.head = st.next; q.head == nil {
		q.tail = nil
	}
	st.next = nil
	return st
}

func (q *streamQueue) pushControl(st *muxStream) {
	st.ctlNext = nil
	if q.tail == nil {
		q.head = st
	} else {
		q.tail.ctlNext = st
	}
	q.tail = st
}

func (q *streamQueue) popControl() *muxStream {
	st := q.head
	if st == nil {
		return nil
	}
	if q.head = st.ctlNext; q.head == nil {
		q.tail = nil
	}
	st.ctlNext = nil
	return st
}

func (q *streamQueue) unpopControl(st *muxStream) {
	st.ctlNext = q.head
	q.head = st
	if q.tail == nil {
		q.tail = st
	}
}
