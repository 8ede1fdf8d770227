// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/base/untrusted"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
)

// flow is one connection on a link, a carrier.Stream. What the peer sends waits in a queue
// of at most konnectivityQueue bytes; a flow that takes too little of it is reset, because the
// wire has no way to make the peer wait, and the other flows must not.
//
//	open ── CloseWrite, Excuse, Close, Reset ──► closing ── the peer's close ──► forgotten
//	  └───────────── the peer's close, or the end of the link ─────────────────►┘
//
// At the agent's end there is no closing: its CLOSE_RSP is the last word.
type flow struct {
	link           *link
	id             int64
	target         string
	readable, room chan struct{} // signals for one reader, and for receive
	behind         time.Duration // receive's own: its reader's pace

	mu       sync.Mutex
	queue    []*packet
	offset   int   // bytes of the first one that were read
	held     int   // bytes, with queueEntry for each packet
	took     int64 // bytes since the tunnel has last waited, counted alike
	unread   atomic.Int64
	tally    atomic.Pointer[atomic.Int64] // counts unread too, once there is one
	end      error
	shut     bool // we write no more
	local    bool // we read no more
	closing  bool // our close is sent
	gone     bool // the peer's close has come, or the link has ended
	deadline time.Time
	half     *time.Timer // sends our close some time after CloseWrite
	closed   func()      // once: it needs no place any more
}

func newFlow(l *link, id int64, target string) *flow {
	return &flow{link: l, id: id, target: target, readable: make(chan struct{}, 1), room: make(chan struct{}, 1)}
}

// onClosed calls fn once when the flow has ended for this end.
func (f *flow) onClosed(fn func()) {
	f.mu.Lock()
	over := f.closing || f.end != nil
	if !over {
		f.closed = sync.OnceFunc(fn)
	}
	f.mu.Unlock()
	if over {
		fn()
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// deliver takes a packet of the peer. It waits for room, as long as the pace of the flow's reader is worth it.
func (f *flow) deliver(p *packet) {
	if f.offer(p) {
		return
	}
	f.link.observe.Waits(f.link.inbound(), +1)
	defer f.link.observe.Waits(f.link.inbound(), -1)
	begin := time.Now()
	left := f.lags(0, begin)
	timer := time.NewTimer(min(left, konnectivityTick))
	defer timer.Stop()
	for {
		select {
		case <-f.room:
		case <-timer.C:
		case <-f.link.done:
			p.free()
			return
		}
		now := time.Now()
		left = f.lags(now.Sub(begin), now)
		begin = now
		switch {
		case f.offer(p):
			return
		case left <= 0:
			p.free()
			f.overflow()
			return
		}
		timer.Reset(min(left, konnectivityTick))
	}
}

// offer queues a packet if there is room, or drops it if nobody will read it.
func (f *flow) offer(p *packet) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.local || f.end != nil {
		p.free()
		return true
	}
	p.trim()
	n := p.held()
	if f.held > 0 && f.held+n > konnectivityQueue {
		return false
	}
	f.queue = append(f.queue, p)
	f.held += n
	f.count(n)
	signal(f.readable)
	return true
}

// overflow resets a flow that takes too little. Its ends may learn no more than that it has ended: the log says why.
func (f *flow) overflow() {
	why := fault.New(fault.CodeLimit, "the connection was reset").
		Whyf("%d bytes for it were not taken, and its reader is %v behind %d bytes a second", konnectivityQueue,
			f.behind.Round(time.Millisecond), konnectivityPace).
		Hint("konnectivity's wire cannot make one connection wait; read faster, or send less at a time")
	f.mu.Lock()
	f.dropLocked()
	if f.end == nil {
		f.end = why
	}
	f.mu.Unlock()
	f.finish(why.Explain())
	f.link.log.Warn("a connection was reset", telemetry.AttrTarget, untrusted.Text(f.target, limit.AuthorityLength),
		telemetry.AttrReason, why)
}

// ends notes the peer's close: no more comes, and what was queued is still read.
func (f *flow) ends(errText string) {
	f.link.forget(f.id)
	why := io.EOF
	if errText != "" {
		why = fault.New(fault.CodeStreamReset, "the connection was reset").
			Whyf("%s", untrusted.Text(errText, limit.FaultText))
	}
	f.over(why)
}

// lost notes the end of the link, which is no orderly one.
func (f *flow) lost(why *fault.Fault) { f.over(why) }

func (f *flow) over(why error) {
	f.mu.Lock()
	if f.end == nil {
		f.end = why
	}
	f.shut, f.gone = true, true
	done := f.closedLocked()
	f.mu.Unlock()
	signal(f.readable)
	done()
}

func (f *flow) closedLocked() func() {
	if f.half != nil {
		f.half.Stop()
	}
	if f.closed == nil {
		return func() {}
	}
	return f.closed
}

func (f *flow) dropLocked() {
	for _, p := range f.queue {
		p.free()
	}
	f.count(-f.held)
	f.queue, f.held, f.offset = nil, 0, 0
	signal(f.room)
	signal(f.readable)
}

// finish tells the peer that the connection has ended, once.
func (f *flow) finish(errText string) {
	f.mu.Lock()
	told := f.closing || f.gone
	f.closing, f.shut = true, true
	done := f.closedLocked()
	f.mu.Unlock()
	if !told {
		if f.link.atAgent {
			f.link.forget(f.id)
		}
		f.link.control(f.link.closing(f.id, errText))
	}
	done()
}

// Read implements carrier.Stream.
func (f *flow) Read(b []byte) (int, error) {
	if err := f.wait(); err != nil {
		return 0, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.queue) == 0 {
		return 0, net.ErrClosed
	}
	p := f.queue[0]
	n := copy(b, p.payload[f.offset:])
	if f.offset += n; f.offset == len(p.payload) {
		f.popLocked()
		f.taken(p)
	}
	return n, nil
}

// popLocked takes the first packet out of the queue; it is counted until it is taken.
func (f *flow) popLocked() *packet {
	p := f.queue[0]
	f.queue[0] = nil
	f.queue = f.queue[1:]
	f.offset = 0
	f.held -= p.held()
	f.took += int64(p.held())
	if len(f.queue) == 0 {
		f.queue = nil
	}
	signal(f.room)
	return p
}

// wait returns when something is queued, or why nothing will be.
func (f *flow) wait() error {
	for {
		f.mu.Lock()
		err, queued, until := f.end, len(f.queue) > 0, f.deadline
		if f.local {
			err, queued = net.ErrClosed, false
		}
		f.mu.Unlock()
		left := time.Until(until)
		switch {
		case !until.IsZero() && left <= 0:
			return os.ErrDeadlineExceeded
		case queued:
			return nil
		case err != nil:
			return err
		case until.IsZero():
			<-f.readable
			continue
		}
		timer := time.NewTimer(left)
		select {
		case <-f.readable:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// settle waits until the peer has sent something, for a moment: the reference's server may put the first bytes of a
// target that speaks first before its own answer to a CONNECT.
func (f *flow) settle() {
	timer := time.NewTimer(limit.Settle)
	defer timer.Stop()
	select {
	case <-f.readable:
		signal(f.readable) // for the reader
	case <-timer.C:
	}
}

// CopyTo implements carrier.Stream.
func (f *flow) CopyTo(dst io.Writer, moved func(n int)) (dstErr, err error) {
	for {
		if err := f.wait(); err != nil {
			return nil, err
		}
		f.mu.Lock()
		if len(f.queue) == 0 {
			f.mu.Unlock()
			continue
		}
		offset := f.offset
		p := f.popLocked()
		f.mu.Unlock()
		n, err := dst.Write(p.payload[offset:])
		f.taken(p)
		if moved != nil && n > 0 {
			moved(n)
		}
		if err != nil {
			return err, nil
		}
	}
}

// Write implements carrier.Stream.
func (f *flow) Write(b []byte) (n int, err error) {
	for n < len(b) {
		if err := f.writable(); err != nil {
			return n, err
		}
		piece := b[n:min(len(b), n+konnectivityData)]
		if err := f.link.send(&packet{kind: data, body: body{connectID: f.id, payload: piece}}); err != nil {
			return n, err
		}
		n += len(piece)
	}
	return n, nil
}

func (f *flow) writable() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.local:
		return net.ErrClosed
	case f.end == io.EOF:
		return &carrier.ResetError{}
	case f.end != nil:
		return f.end
	case f.shut:
		return net.ErrClosed
	}
	return nil
}

// CloseWrite implements carrier.Stream. The wire has no half-close. At the agent's end the
// end of the target is that of the connection. At the server's end the target may still
// answer for konnectivityHalf.
func (f *flow) CloseWrite() error {
	if f.link.atAgent {
		f.finish("")
		f.over(io.EOF)
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.shut = true
	if f.half == nil && !f.closing && f.end == nil {
		f.half = time.AfterFunc(konnectivityHalf, f.Excuse)
	}
	return nil
}

// Excuse tells the peer at once that its caller takes no more.
func (f *flow) Excuse() { f.finish("") }

// Close implements carrier.Stream.
func (f *flow) Close() error { f.leave(""); return nil }

// Reset implements carrier.Stream. The wire has a text and no code.
func (f *flow) Reset(uint32) error { f.leave("the connection was reset"); return nil }

func (f *flow) leave(errText string) {
	f.mu.Lock()
	f.local = true
	f.dropLocked()
	f.mu.Unlock()
	f.finish(errText)
}
