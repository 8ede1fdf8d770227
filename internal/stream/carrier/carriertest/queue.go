// SPDX-License-Identifier: Apache-2.0

package carriertest

import (
	"os"
	"sync"
	"time"
)

// queue is a bounded sequence of bytes from a writer to a reader, one direction
// of a stream or of a wire. Its lock belongs to whoever made it, so that several
// queues can change together.
type queue struct {
	mu     *sync.Mutex
	change sync.Cond // bytes, room, an end or a deadline
	most   int       // bytes that wait
	halted bool      // nothing moves

	wait []byte // bytes that were written and not read yet
	mem  []byte // where wait lies

	tail       error // what the reader gets after the last byte; nil: more may come
	readError  error // what the reader gets at once
	writeError error // what the writer gets at once
	readBy     deadline
	writeBy    deadline

	// on is told of bytes that were written (n > 0), or read or dropped (n < 0).
	on func(n int)
	// pass, if not nil, says how many of n bytes may still be written, and ends
	// the queue if they may not all.
	pass func(n int) int
}

func newQueue(mu *sync.Mutex, most int) *queue {
	q := &queue{mu: mu, most: most, on: func(int) {}}
	q.change.L = mu
	return q
}

// write blocks until all of b is taken, or gives what was.
func (q *queue) write(b []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.writeLocked(b)
}

func (q *queue) writeLocked(b []byte) (wrote int, err error) {
	for {
		if q.writeError != nil {
			return wrote, q.writeError
		}
		if q.writeBy.passed() {
			return wrote, os.ErrDeadlineExceeded
		}
		if n := min(q.most-len(q.wait), len(b)); n > 0 && !q.halted {
			if q.pass != nil {
				n = q.pass(n)
			}
			q.append(b[:n])
			b, wrote = b[n:], wrote+n
			continue
		}
		if len(b) == 0 {
			return wrote, nil
		}
		q.change.Wait()
	}
}

func (q *queue) append(b []byte) {
	if len(b) == 0 {
		return
	}
	if cap(q.wait)-len(q.wait) < len(b) {
		if len(q.wait)+len(b) > len(q.mem) {
			q.mem = make([]byte, min(q.most, max(512, 2*(len(q.wait)+len(b)))))
		}
		q.wait = q.mem[:copy(q.mem, q.wait)]
	}
	q.wait = append(q.wait, b...)
	q.on(len(b))
	q.change.Broadcast()
}

func (q *queue) read(b []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		switch {
		case q.readError != nil:
			return 0, q.readError
		case q.readBy.passed():
			return 0, os.ErrDeadlineExceeded
		case len(b) == 0:
			return 0, nil
		case len(q.wait) > 0 && !q.halted:
			n := copy(b, q.wait)
			q.wait = q.wait[n:]
			if len(q.wait) == 0 { // an idle queue holds no memory
				q.wait, q.mem = nil, nil
			}
			q.on(-n)
			q.change.Broadcast()
			return n, nil
		case q.tail != nil && !q.halted:
			return 0, q.tail
		}
		q.change.Wait()
	}
}

// The following need the lock.

// finish says what comes after the last byte, once.
func (q *queue) finish(tail error) {
	if q.tail == nil {
		q.tail = tail
		q.change.Broadcast()
	}
}

// refuse ends reading at once and drops what was not read.
func (q *queue) refuse(err error) {
	if q.readError == nil {
		q.readError = err
		q.on(-len(q.wait))
		q.wait, q.mem = nil, nil
		q.readBy.stop()
		q.change.Broadcast()
	}
}

// block ends writing at once.
func (q *queue) block(err error) {
	if q.writeError == nil {
		q.writeError = err
		q.writeBy.stop()
		q.change.Broadcast()
	}
}

// readOver says whether the reader has been told, or will be, that nothing more comes.
func (q *queue) readOver() bool { return q.tail != nil || q.readError != nil }

// deadline of one direction. The zero value is none.
type deadline struct {
	at    time.Time
	timer *time.Timer
}

// setDeadline wakes who waits, now and when the time comes.
func (q *queue) setDeadline(d *deadline, at time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	d.stop()
	d.at = at
	if left := time.Until(at); !at.IsZero() && left > 0 {
		d.timer = time.AfterFunc(left, func() {
			q.mu.Lock()
			defer q.mu.Unlock()
			q.change.Broadcast()
		})
	}
	q.change.Broadcast()
}

func (d *deadline) passed() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

func (d *deadline) stop() {
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
}
