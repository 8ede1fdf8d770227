// SPDX-License-Identifier: Apache-2.0

package carrier

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
