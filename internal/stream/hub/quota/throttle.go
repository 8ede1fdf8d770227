// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tombolo-io/tombolo/internal/stream/carrier"
)

// Throttle is where one direction of a stream pays for its bytes: to its cluster, its
// agent and its caller. Where no rate is bounded that is three looks at a flag.
//
// Bytes are paid for after they have moved and before the next ones do: a stream that waits
// holds nothing that could be lost at its end, and its peer runs out of window meanwhile.
type Throttle struct {
	to   [3]*shaper
	pace [3]pace

	// A caller that has left does not wait and keeps no place: the bucket pays for what its
	// stream has moved, as after its end.
	lost    <-chan struct{} // closed when the session has ended
	Left    func() bool     // whether the caller has left; nil: only the stream's end shows it
	excused atomic.Bool

	mu       sync.Mutex
	ended    bool
	deadline time.Time
	wake     chan struct{} // closed when deadline or ended changes; nil while nobody waits
}

// open says that bytes may move now without a wait.
func (t *Throttle) open() bool {
	for _, s := range t.to {
		if s != nil && !s.open() {
			return false
		}
	}
	return true
}

// free says that no rate is bounded.
func (t *Throttle) free() bool {
	for _, s := range t.to {
		if s != nil && s.on.Load() {
			return false
		}
	}
	return true
}

// Pay waits until n bytes are paid for, the deadline has passed or the stream has
// ended: what comes of that the stream itself says.
func (t *Throttle) Pay(n int) {
	if n <= 0 || t.free() {
		return
	}
	for i, s := range t.to {
		switch {
		case s == nil:
			continue
		case t.excused.Load():
			s.charge(int64(n), &t.pace[i])
			continue
		}
		if d := s.pay(int64(n), &t.pace[i]); d != nil && !t.wait(d) {
			s.assume(d)
		}
	}
}

// wait reports false if the deadline passed or the caller is gone.
func (t *Throttle) wait(d *debt) bool {
	for {
		t.mu.Lock()
		over, deadline := t.ended || t.excused.Load(), t.deadline
		if t.wake == nil {
			t.wake = make(chan struct{})
		}
		wake := t.wake
		t.mu.Unlock()
		if over || !deadline.IsZero() && !time.Now().Before(deadline) {
			return false
		}
		look := shapeLook
		if !deadline.IsZero() {
			look = min(look, time.Until(deadline))
		}
		timer := time.NewTimer(look)
		select {
		case <-d.paid:
			timer.Stop()
			return true
		case <-wake:
		case <-t.lost:
			t.excused.Store(true)
		case <-timer.C:
			if t.Left != nil && t.Left() {
				t.excused.Store(true)
			}
		}
		timer.Stop()
		if t.excused.Load() {
			return false
		}
	}
}

// Deadline is how long a wait may take.
func (t *Throttle) Deadline() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.deadline
}

// SetDeadline bounds waits, also one that is under way.
func (t *Throttle) SetDeadline(deadline time.Time) { t.change(func() { t.deadline = deadline }) }

// Excuse ends all waits: the bucket pays for the bytes of the stream from now on.
func (t *Throttle) Excuse() {
	t.excused.Store(true)
	t.change(func() {})
}

// Excused says whether Excuse was called, or the caller was found to be gone.
func (t *Throttle) Excused() bool { return t.excused.Load() }

// End ends all waits because the stream has ended.
func (t *Throttle) End() { t.change(func() { t.ended = true }) }

func (t *Throttle) change(fn func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fn()
	if t.wake != nil {
		close(t.wake)
		t.wake = nil
	}
}

// Writer pays for what is written. It does not look prompt unless the
// writer behind it is.
func (t *Throttle) Writer(w io.Writer) io.Writer {
	p := throttledWriter{w, t}
	if prompt, ok := w.(carrier.PromptWriter); ok {
		return throttledPrompt{p, prompt}
	}
	return p
}

type throttledWriter struct {
	io.Writer
	throttle *Throttle
}

func (w throttledWriter) Write(b []byte) (int, error) {
	n, err := w.Writer.Write(b)
	w.throttle.Pay(n)
	return n, err
}

type throttledPrompt struct {
	throttledWriter
	prompt carrier.PromptWriter
}

// WriteNow is called by the reader of the session's connection and must not wait: at
// the bound it takes nothing, and the stream's own copy continues with Write.
func (w throttledPrompt) WriteNow(b []byte) (int, error) {
	if w.throttle.free() {
		return w.prompt.WriteNow(b)
	}
	if !w.throttle.open() {
		return 0, nil
	}
	n, err := w.prompt.WriteNow(b)
	w.throttle.Charge(n)
	return n, err
}

// Charge pays without waiting: the bucket had something a moment ago.
func (t *Throttle) Charge(n int) {
	for i, s := range t.to {
		if s != nil && n > 0 {
			s.charge(int64(n), &t.pace[i])
		}
	}
}
