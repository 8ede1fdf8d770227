// SPDX-License-Identifier: Apache-2.0

// Package splice copies between two connections in both directions until both
// have ended. It forwards half-close and reset to the other side. Nothing is
// allocated, locked or logged per chunk, and a silent connection holds no buffer.
// It neither dials nor decides.
package splice

import (
	"context"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/socket"
	"github.com/tombolo-io/tombolo/internal/stream/datagram"
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
	Idle time.Duration // without a byte in either direction before it ends; 0 means limit.StreamIdle
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
type Splicer struct {
	large, small sync.Pool
	whole        sync.Pool // for a datagram
	pipes        pipes
}

// New makes a Splicer.
func New() *Splicer {
	most := socket.Descriptors()
	return &Splicer{
		large: pool(limit.CopyBuffer), small: pool(limit.WaitBuffer), whole: pool(datagram.Most + 1),
		pipes: pipes{first: most - socket.Reserve(most), splice: spliceOnce},
	}
}

func pool(size int) sync.Pool {
	return sync.Pool{New: func() any { b := make([]byte, size); return &b }}
}

// Both copies until both directions have ended, one of them has failed, no byte has
// moved for the idle limit, or ctx has ended. It closes both sides. ResetCode maps
// the reason to the code that the peers see.
func (s *Splicer) Both(ctx context.Context, a, b Conn, o Options) Result {
	var r Result
	p := s.pair(ctx, a, b, o, func(got Result) { r = got })
	p.uploading.Go(p.upload)
	p.download()
	p.uploading.Wait()
	return r
}

// Start is Both for whoever does not wait: it returns at once, and ended is called with
// the result. A tunnel then costs two goroutines with small stacks, and no third that waits.
func (s *Splicer) Start(ctx context.Context, a, b Conn, o Options, ended func(Result)) {
	p := s.pair(ctx, a, b, o, ended)
	go p.upload()
	go p.download()
}

// pair makes the state of a splice whose copies are to be started.
func (s *Splicer) pair(ctx context.Context, a, b Conn, o Options, ended func(Result)) *pair {
	if o.Idle <= 0 {
		o.Idle = limit.StreamIdle
	}
	if o.HalfIdle <= 0 {
		o.HalfIdle = min(o.Idle, limit.HalfClosedIdle)
	}
	p := &pair{
		splicer: s,
		up:      direction{to: b, from: a, total: o.Up},
		down:    direction{to: a, from: b, total: o.Down},
		watch:   idleWatch{idle: o.Idle, halfIdle: o.HalfIdle, since: time.Now()},
		done:    ended,
	}
	p.release = run.OnDone(ctx, func() { p.abort(fault.CodeSessionLost, context.Cause(ctx)) })
	p.startWatch()
	return p
}

type direction struct {
	to, from Conn
	moved    Counter
	total    *Counter
}

func (d *direction) count(n int) {
	d.moved.Add(int64(n))
	if d.total != nil {
		d.total.Add(int64(n))
	}
}

// pair is one splice. It is a single allocation, because thousands of them are idle.
type pair struct {
	splicer   *Splicer
	up, down  direction
	uploading sync.WaitGroup
	finished  atomic.Int32 // directions that ended
	release   func()       // of the context
	done      func(Result)

	mu      sync.Mutex
	code    fault.Code // the first reason stands
	err     error
	aborted bool
	over    bool  // no timer may run any more
	gone    error // why one side accepts no more bytes
	linger  *time.Timer
	watch   idleWatch
}

func (p *pair) upload() {
	p.copy(&p.up)
	p.ended()
}

func (p *pair) download() {
	p.copy(&p.down)
	p.ended()
}

func (p *pair) copy(d *direction) {
	srcErr, dstErr := p.splicer.move(d.to, d.from, d.count)
	switch {
	case dstErr != nil:
		p.discard(d, srcErr, dstErr)
	case srcErr != io.EOF: // io.EOF itself: a wrapped one means a broken connection
		p.abort(reason(srcErr), srcErr)
	default:
		if err := d.to.CloseWrite(); err != nil {
			p.abort(reason(err), err)
		}
	}
}

// discard continues after d.to has stopped accepting bytes. What d.to sent before may
// still be on its way to d.from, and a reset would overtake and destroy it, which TCP
// would not do: a server that has answered and closed must not lose its answer because
// the client sent one more byte. So the bytes of this direction are discarded until the
// other one has ended. A peer that keeps sending is reset after limit.Discard bytes, or
// limit.Linger after the end of the other direction. srcErr is nil unless d.from has
// already ended.
func (p *pair) discard(d *direction, srcErr, cause error) {
	p.mu.Lock()
	p.noteLocked(reason(cause), cause)
	if p.gone = cause; p.finished.Load() > 0 {
		p.armLingerLocked()
	}
	p.mu.Unlock()
	if srcErr == nil {
		var full error
		if srcErr, full = p.splicer.move(&bin{left: limit.Discard, full: cause}, d.from, nil); full != nil {
			srcErr = full
		}
	}
	if srcErr != io.EOF {
		p.abort(reason(srcErr), srcErr)
	}
}

// ended counts a direction that has ended; the second one ends the splice.
func (p *pair) ended() {
	p.mu.Lock()
	n := p.finished.Add(1)
	if n == 1 && p.gone != nil {
		p.armLingerLocked()
	}
	p.mu.Unlock()
	if n < 2 {
		return
	}
	p.up.from.Close()
	p.up.to.Close()
	p.stopTimers()
	p.release()
	p.mu.Lock()
	r := Result{Up: p.up.moved.Load(), Down: p.down.moved.Load(), Code: p.code, Err: p.err}
	p.mu.Unlock()
	p.done(r)
}

// armLingerLocked aborts the splice after limit.Linger.
func (p *pair) armLingerLocked() {
	cause := p.gone
	p.linger = time.AfterFunc(limit.Linger, func() { p.abort(reason(cause), cause) })
}

// noteLocked keeps the first reason.
func (p *pair) noteLocked(code fault.Code, err error) {
	if p.code == "" {
		p.code, p.err = code, err
	}
}

// abort resets both sides, once; the first reason stands.
func (p *pair) abort(code fault.Code, err error) {
	p.mu.Lock()
	p.noteLocked(code, err)
	code = p.code
	first := !p.aborted
	p.aborted = true
	p.mu.Unlock()
	if first {
		c := ResetCode(code)
		p.up.from.Reset(c)
		p.up.to.Reset(c)
	}
}

// idleWatch checks the counters periodically instead of arming a deadline for each
// chunk.
type idleWatch struct {
	idle, halfIdle time.Duration
	timer          *time.Timer
	moved          int64     // by both directions, at the last check
	since          time.Time // when moved last changed
}

func (w *idleWatch) interval() time.Duration { return min(w.idle, w.halfIdle) / 4 }

func (p *pair) startWatch() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watch.timer = time.AfterFunc(p.watch.interval(), p.look)
}

func (p *pair) look() {
	if bound := p.idleFor(); bound > 0 {
		p.abort(fault.CodeStreamIdle, fault.New(fault.CodeStreamIdle, "the stream was idle").Whyf("no byte for %v", bound))
	}
}

// idleFor returns the bound that was reached, or 0: then the watch continues.
func (p *pair) idleFor() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := &p.watch
	moved, now := p.up.moved.Load()+p.down.moved.Load(), time.Now()
	if moved != w.moved {
		w.moved, w.since = moved, now
	}
	bound := w.idle
	if p.finished.Load() > 0 {
		bound = w.halfIdle
	}
	switch {
	case p.over:
		return 0
	case now.Sub(w.since) >= bound:
		return bound
	}
	w.timer.Reset(w.interval())
	return 0
}

func (p *pair) stopTimers() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	p.watch.timer.Stop()
	if p.linger != nil {
		p.linger.Stop()
	}
}
