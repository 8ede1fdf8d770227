// SPDX-License-Identifier: Apache-2.0

package grpcwire

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
)

// answersMost bounds the answers that a peer does not read.
const answersMost = 16 << 10

// answersBeside are so few that they are written with what follows.
const answersBeside = 256

// farewellMost is how long a connection that ends waits for its last words to be taken.
const farewellMost = time.Second

var errUnread = errors.New("the peer does not read what it is answered")

// writer is the sending side of a connection. Whoever has it writes; answers wait for whoever has it, or who comes.
//
//	free ── begin ──► busy ── end, which writes the answers that have come ──► free
//	  └── flush, where there are answers, without waiting for the peer ──► busy ──► free
type writer struct {
	raw    net.Conn
	prompt carrier.PromptWriter // nil: none
	group  *run.Group
	sent   atomic.Bool // something that is no answer, since somebody asked

	mu      sync.Mutex
	turn    sync.Cond
	busy    bool
	answers []byte
	err     error
}

// answer has bytes written soon: by a flush at the latest.
func (w *writer) answer(add func([]byte) []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.answers) > answersMost {
		return errUnread
	}
	w.answers = add(w.answers)
	return w.err
}

// begin waits for its turn.
func (w *writer) begin() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.busy && w.err == nil {
		w.turn.Wait()
	}
	w.busy = w.busy || w.err == nil
	return w.err
}

// write is for whoever has the turn; the answers go first.
func (w *writer) write(b []byte) error {
	answers, err := w.take()
	if err == nil && len(answers) > 0 {
		_, err = w.raw.Write(answers)
	}
	if err == nil {
		_, err = w.raw.Write(b)
	}
	return err
}

// prefix appends the answers that wait if they are few.
func (w *writer) prefix(b []byte) []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.answers) <= answersBeside {
		b, w.answers = append(b, w.answers...), nil
	}
	return b
}

func (w *writer) take() ([]byte, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	b := w.answers
	w.answers = nil
	return b, w.err
}

// end gives the turn back; err is that of what was written.
func (w *writer) end(err error) error {
	for {
		w.mu.Lock()
		if w.err == nil {
			w.err = err
		}
		err = w.err
		if err != nil || len(w.answers) == 0 {
			w.busy = false
			w.mu.Unlock()
			w.next(err)
			return err
		}
		b := w.answers
		w.answers = nil
		w.mu.Unlock()
		_, err = w.raw.Write(b)
	}
}

// flush writes the answers that wait. It does not wait for the peer: a goroutine does, if it is needed.
func (w *writer) flush() {
	for {
		w.mu.Lock()
		if w.busy || w.err != nil || len(w.answers) == 0 {
			w.mu.Unlock()
			return
		}
		w.busy = true
		b := w.answers
		w.answers = nil
		w.mu.Unlock()
		if w.prompt != nil {
			n, err := w.prompt.WriteNow(b)
			if b = b[n:]; err != nil || len(b) == 0 {
				w.free(err)
				continue
			}
		}
		w.group.Do(func(context.Context) {
			_, err := w.raw.Write(b)
			w.end(err)
		})
		return
	}
}

func (w *writer) free(err error) {
	w.mu.Lock()
	if w.err == nil {
		w.err = err
	}
	w.busy = false
	w.mu.Unlock()
	w.next(err)
}

// next wakes who waits for a turn: all, if there will be none.
func (w *writer) next(err error) {
	if err != nil {
		w.turn.Broadcast()
	} else {
		w.turn.Signal()
	}
}

// farewell has the answers that are left written, by whoever is writing or itself.
func (w *writer) farewell() {
	w.mu.Lock()
	some := len(w.answers) > 0
	w.mu.Unlock()
	if !some {
		return
	}
	w.raw.SetWriteDeadline(time.Now().Add(farewellMost)) // for both
	if w.begin() == nil {
		w.end(nil)
	}
}

// fail ends the writer for everybody who waits.
func (w *writer) fail(err error) {
	w.mu.Lock()
	if w.err == nil {
		w.err = err
	}
	w.mu.Unlock()
	w.turn.Broadcast()
}
