// SPDX-License-Identifier: Apache-2.0

// Package splice copies between two connections in both directions until both
// have ended. Half-close and reset travel to the other side; nothing is
// allocated, locked or logged per chunk. It does not dial and does not decide.
package splice

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tombolo-io/tombolo/internal/fault"
	"github.com/tombolo-io/tombolo/internal/limit"
	"github.com/tombolo-io/tombolo/internal/run"
)

// Conn is one side of a splice.
type Conn interface {
	io.ReadWriteCloser
	CloseWrite() error
	Reset(code uint32) error
}

// Counter counts bytes; several splices may share one.
type Counter = atomic.Int64

// Options of one splice.
type Options struct {
	Idle time.Duration // no byte in either direction for so long ends it; 0 means limit.StreamIdle
	// HalfIdle is Idle once one side has finished; 0 means limit.HalfClosedIdle.
	HalfIdle time.Duration
	// Up and Down, if set, also count the bytes from a to b and from b to a as they move.
	Up, Down *Counter
}

// Result says how a splice ended.
type Result struct {
	Up, Down int64      // bytes from a to b and from b to a
	Code     fault.Code // empty: both sides finished in order
	Err      error      // the first error, nil with an empty Code
}

// Splicer owns the copy buffers. One serves a whole process.
type Splicer struct{ buffers sync.Pool }

// New makes a Splicer.
func New() *Splicer {
	return &Splicer{sync.Pool{New: func() any { b := make([]byte, limit.CopyBuffer); return &b }}}
}

// Both copies until both directions have ended, one of them failed, nothing
// moved for the idle limit, or ctx ended. It closes both sides. ResetCode maps
// the reason to the code that the peers see.
func (s *Splicer) Both(ctx context.Context, a, b Conn, o Options) Result {
	if o.Idle <= 0 {
		o.Idle = limit.StreamIdle
	}
	if o.HalfIdle <= 0 {
		o.HalfIdle = min(o.Idle, limit.HalfClosedIdle)
	}
	p := &pair{a: a, b: b, pool: &s.buffers}
	up := &direction{to: b, from: a, total: o.Up}
	down := &direction{to: a, from: b, total: o.Down}

	release := run.OnDone(ctx, func() { p.abort(fault.CodeSessionLost, context.Cause(ctx)) })
	defer release()
	defer p.stopLinger()
	watch := newIdleWatch(p, up, down, o)
	defer watch.stop()

	finished := make(chan struct{})
	go func() {
		defer close(finished)
		p.copy(up)
	}()
	p.copy(down)
	<-finished
	a.Close()
	b.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	return Result{Up: up.moved.Load(), Down: down.moved.Load(), Code: p.code, Err: p.err}
}

type direction struct {
	to, from Conn
	moved    Counter
	total    *Counter
}

type pair struct {
	a, b     Conn
	pool     *sync.Pool
	finished atomic.Int32 // directions that ended

	mu      sync.Mutex
	code    fault.Code // the first reason stands
	err     error
	aborted bool
	gone    error // why one side takes no more
	linger  *time.Timer
}

func (p *pair) copy(d *direction) {
	defer p.ended()
	buf := p.pool.Get().(*[]byte)
	defer p.pool.Put(buf)
	for {
		n, err := d.from.Read(*buf)
		if n > 0 {
			if _, werr := d.to.Write((*buf)[:n]); werr != nil {
				p.discard(d, *buf, werr)
				return
			}
			d.moved.Add(int64(n))
			if d.total != nil {
				d.total.Add(int64(n))
			}
		}
		if err == nil {
			continue
		}
		if err != io.EOF { // io.EOF itself: one that is wrapped tells of a connection that broke
			p.abort(reason(err), err)
		} else if err := d.to.CloseWrite(); err != nil {
			p.abort(reason(err), err)
		}
		return
	}
}

// reason is the code that an error carries, or else that of a reset.
func reason(err error) fault.Code {
	var f *fault.Fault
	var reset interface{ ResetCode() uint32 }
	switch {
	case errors.As(err, &f):
		return f.Code
	case errors.As(err, &reset):
		return ResetReason(reset.ResetCode())
	}
	return fault.CodeStreamReset
}

// discard goes on after d.to has stopped taking bytes. What it had sent before
// that may still be on its way to d.from, and a reset would overtake and destroy
// it, which no TCP would do: a server that has answered and closed must not lose
// its answer because the client sent one byte more. So this direction is thrown
// away while the other goes on to its own end. A peer that keeps sending is
// reset after limit.Discard bytes, or limit.Linger after the other direction's end.
func (p *pair) discard(d *direction, buf []byte, cause error) {
	p.mu.Lock()
	p.note(reason(cause), cause)
	if p.gone = cause; p.finished.Load() > 0 {
		p.armLinger()
	}
	p.mu.Unlock()
	for left := limit.Discard; ; {
		n, err := d.from.Read(buf)
		left -= n
		switch {
		case err == io.EOF:
			return
		case err != nil:
			p.abort(reason(err), err)
			return
		case left < 0:
			p.abort(reason(cause), cause)
			return
		}
	}
}

// ended counts a direction that is over.
func (p *pair) ended() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.finished.Add(1) == 1 && p.gone != nil {
		p.armLinger()
	}
}

// armLinger needs the lock.
func (p *pair) armLinger() {
	cause := p.gone
	p.linger = time.AfterFunc(limit.Linger, func() { p.abort(reason(cause), cause) })
}

func (p *pair) stopLinger() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.linger != nil {
		p.linger.Stop()
	}
}

// note keeps the first reason. It needs the lock.
func (p *pair) note(code fault.Code, err error) {
	if p.code == "" {
		p.code, p.err = code, err
	}
}

// abort resets both sides, once; the first reason stands.
func (p *pair) abort(code fault.Code, err error) {
	p.mu.Lock()
	p.note(code, err)
	code = p.code
	first := !p.aborted
	p.aborted = true
	p.mu.Unlock()
	if first {
		c := ResetCode(code)
		p.a.Reset(c)
		p.b.Reset(c)
	}
}

// idleWatch looks at the counters from time to time instead of arming a
// deadline for each chunk.
type idleWatch struct {
	mu      sync.Mutex
	timer   *time.Timer
	stopped bool
}

func newIdleWatch(p *pair, up, down *direction, o Options) *idleWatch {
	w := &idleWatch{}
	last, since := int64(-1), time.Now()
	var check func()
	check = func() {
		moved, now := up.moved.Load()+down.moved.Load(), time.Now()
		if moved != last {
			last, since = moved, now
		}
		bound := o.Idle
		if p.finished.Load() > 0 {
			bound = o.HalfIdle
		}
		if now.Sub(since) >= bound {
			p.abort(fault.CodeStreamIdle, fault.New(fault.CodeStreamIdle, "the stream was idle").Whyf("no byte for %v", bound))
			return
		}
		w.arm(min(o.Idle, o.HalfIdle)/4, check)
	}
	w.arm(min(o.Idle, o.HalfIdle)/4, check)
	return w
}

func (w *idleWatch) arm(after time.Duration, check func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.stopped {
		w.timer = time.AfterFunc(after, check)
	}
}

func (w *idleWatch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	w.timer.Stop()
}

// resetReasons are the numbers that travel in a reset (docs/reference/session.md).
func resetReasons() []fault.Code {
	return []fault.Code{
		1: fault.CodeStreamReset, 2: fault.CodeStreamIdle, 3: fault.CodeDialCanceled,
		4: fault.CodeDraining, 5: fault.CodeSessionLost, 6: fault.CodePolicyDenied,
	}
}

// ResetCode maps a reason to its number; others travel as an unspecified reset.
func ResetCode(code fault.Code) uint32 {
	return uint32(max(slices.Index(resetReasons(), code), 1))
}

// ResetReason maps the number of a peer's reset back to its reason.
func ResetReason(code uint32) fault.Code {
	if all := resetReasons(); code > 0 && code < uint32(len(all)) {
		return all[code]
	}
	return fault.CodeStreamReset
}
