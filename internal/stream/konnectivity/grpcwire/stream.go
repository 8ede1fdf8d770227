// SPDX-License-Identifier: Apache-2.0

package grpcwire

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

var (
	errGone = status.Error(codes.Canceled, "the caller has left the stream")
	errOver = errors.New("the stream's handler has returned")
)

// Stream is one. Read and ReadMessageHeader are for one goroutine, what sends for another.
type Stream struct {
	conn   *conn
	id     uint32
	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{}

	mu       sync.Mutex
	queue    []byte  // came, and was not asked for; at most Window
	held     *[]byte // the memory of queue
	into     []byte  // is asked for
	readable chan struct{}
	came     error // no more comes
	window   int   // the peer's
	hook     func()
	eaten    int // of it, not given back

	// Of conn.mu.
	quota    int // ours
	writable chan struct{}
	starved  bool  // is in conn.starved
	over     bool  // done is closed
	stopped  error // nothing more may be sent, but for a status
	gone     bool  // not even that

	headed  bool // of whoever sends
	last    []byte
	trailer metadata.MD
	finally func()
}

// newStream is nil where there are too many. One that has been reset counts until its handler returns.
func (c *conn) newStream(id uint32) *Stream {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running >= c.Streams {
		return nil
	}
	s := &Stream{conn: c, id: id, readable: make(chan struct{}, 1), done: make(chan struct{}), window: c.Window,
		quota: c.first}
	if c.streams == nil {
		c.streams = map[uint32]*Stream{}
	}
	c.streams[id] = s
	c.running++
	return s
}

func (c *conn) stream(id uint32) *Stream {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.streams[id]
}

// drop ends a stream that the peer has reset, or that is reset.
func (c *conn) drop(s *Stream) {
	c.mu.Lock()
	delete(c.streams, s.id)
	c.mu.Unlock()
	s.abort(errGone)
}

// serve runs the handler. The peer decides how long its status takes: meanwhile nothing is received.
func (s *Stream) serve(context.Context) {
	c := s.conn
	err := c.Handle(s)
	s.finish(err, s.stop(errOver))
	s.cancel()
	c.mu.Lock()
	s.overLocked()
	delete(c.streams, s.id)
	c.running--
	c.mu.Unlock()
	if s.finally != nil {
		s.finally()
	}
}

func (s *Stream) overLocked() {
	if s.starved {
		s.starved = false
		s.conn.starved = slices.DeleteFunc(s.conn.starved, func(o *Stream) bool { return o == s })
	}
	if !s.over {
		s.over = true
		close(s.done)
	}
}

// Context ends when the peer has left the stream, its handler has returned, or Cancel was called.
func (s *Stream) Context() context.Context { return s.ctx }

// Cancel ends Context and nothing else, so that a handler needs none of its own.
func (s *Stream) Cancel() {
	s.cancel()
	s.runHook()
}

// OnCancel has fn called once, in a goroutine of its own, when Context ends. It is one for a stream, and takes less
// memory than what waits for a context. The handler takes it back (nil) before it returns.
func (s *Stream) OnCancel(fn func()) {
	s.mu.Lock()
	s.hook = fn
	s.mu.Unlock()
	if s.ctx.Err() != nil {
		s.runHook()
	}
}

func (s *Stream) runHook() {
	s.mu.Lock()
	fn := s.hook
	s.hook = nil
	s.mu.Unlock()
	if fn != nil { // the reader may be here, and waits for nothing
		s.conn.group.Do(func(context.Context) { fn() })
	}
}

// Done is closed when the peer has left the stream, or its handler has returned.
func (s *Stream) Done() <-chan struct{} { return s.done }

// abort ends a stream that cannot have a status any more.
func (s *Stream) abort(why error) {
	s.conn.mu.Lock()
	s.gone, s.stopped = true, why
	s.overLocked()
	s.conn.wakeLocked(s)
	s.conn.mu.Unlock()
	s.stop(why)
	s.Cancel()
}

// late ends what a stream waits for whose time is over; it may still have a status.
func (s *Stream) late() {
	why := context.Cause(s.ctx)
	if !errors.Is(why, context.DeadlineExceeded) {
		return
	}
	why = status.FromContextError(why).Err()
	s.conn.mu.Lock()
	s.stopped = why
	s.conn.wakeLocked(s)
	s.conn.mu.Unlock()
	s.stop(why)
	s.runHook()
}

// stop ends what is received, and reports whether there could have been more.
func (s *Stream) stop(why error) (more bool) {
	s.mu.Lock()
	more = s.came == nil
	s.came = why
	s.dropLocked()
	s.mu.Unlock()
	signal(s.readable)
	return more
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// finished notes that the peer has ended its direction.
func (s *Stream) finished() {
	s.mu.Lock()
	if s.came == nil {
		s.came = io.EOF
	}
	s.mu.Unlock()
	signal(s.readable)
}

// announce answers for a frame that is about to come, of which so much is no data.
func (s *Stream) announce(n, padding int) (code http2.ErrCode, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.came == io.EOF {
		return http2.ErrCodeStreamClosed, false
	}
	s.eaten += padding
	s.window -= n
	return http2.ErrCodeFlowControl, s.window >= 0
}

// deliver takes what comes: for whoever asks for it, or for later.
func (s *Stream) deliver(b []byte) {
	s.mu.Lock()
	if s.came != nil {
		s.mu.Unlock()
		return
	}
	n := copy(s.into, b)
	if n > 0 {
		s.into = s.into[n:]
		s.eaten += n
		if len(s.into) == 0 {
			signal(s.readable)
		}
	}
	s.keepLocked(b[n:])
	back := s.backLocked()
	s.mu.Unlock()
	s.answerWindow(back) // the reader flushes
}

// keepLocked appends to the queue, in memory of the pool that grows with it.
func (s *Stream) keepLocked(b []byte) {
	if len(b) == 0 {
		return
	}
	pool, had := s.conn.Pool, s.held
	if had == nil || cap(s.queue)-len(s.queue) < len(b) {
		s.held = pool.Get(min(max(2*len(s.queue), len(s.queue)+len(b)), s.conn.Window))
		s.queue = append((*s.held)[:0], s.queue...)
		if had != nil {
			pool.Put(had)
		}
	}
	s.queue = append(s.queue, b...)
}

func (s *Stream) dropLocked() {
	if s.held != nil {
		s.conn.Pool.Put(s.held)
	}
	s.held, s.queue = nil, nil
}

// backLocked is how much of the window is worth giving back.
func (s *Stream) backLocked() (n int) {
	if s.eaten >= s.conn.Window/4 && s.came == nil {
		n, s.eaten = s.eaten, 0
		s.window += n
	}
	return n
}

func (s *Stream) answerWindow(n int) {
	if n > 0 && s.conn.out.answer(func(b []byte) []byte { return appendWindow(b, s.id, n) }) != nil {
		s.conn.raw.Close() // who reads no answers
	}
}

// giveBack is for who is not the connection's reader.
func (s *Stream) giveBack(n int) {
	if s.answerWindow(n); n > 0 {
		s.conn.out.flush()
	}
}

// fill reads as many bytes as b has.
func (s *Stream) fill(b []byte) error {
	begun := false
	s.mu.Lock()
	for {
		n := copy(b, s.queue)
		b, s.queue, s.eaten = b[n:], s.queue[n:], s.eaten+n
		if begun = begun || n > 0; len(s.queue) == 0 {
			s.dropLocked()
		}
		if len(b) == 0 || s.came != nil {
			break
		}
		s.into = b
		back := s.backLocked()
		s.mu.Unlock()
		s.giveBack(back)
		<-s.readable
		s.mu.Lock()
		begun = begun || len(s.into) < len(b)
		b, s.into = s.into, nil
	}
	err, back := s.came, s.backLocked()
	s.mu.Unlock()
	s.giveBack(back)
	switch {
	case len(b) == 0:
		return nil
	case err == io.EOF && begun:
		return io.ErrUnexpectedEOF
	}
	return err
}

// ReadMessageHeader reads the five bytes before a message; io.EOF says that the peer has ended its direction.
func (s *Stream) ReadMessageHeader(header []byte) error { return s.fill(header) }

// Read reads n bytes of a message.
func (s *Stream) Read(n int) (mem.BufferSlice, error) {
	b := s.conn.Pool.Get(n)
	if err := s.fill(*b); err != nil {
		s.conn.Pool.Put(b)
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	return mem.BufferSlice{mem.NewBuffer(b, s.conn.Pool)}, nil
}

// SetTrailer adds to what comes with the status.
func (s *Stream) SetTrailer(md metadata.MD) { s.trailer = metadata.Join(s.trailer, md) }

// head is that of the response, once.
func (s *Stream) head(b []byte) []byte {
	if s.headed {
		return b
	}
	s.headed = true
	return appendHeaders(b, s.id, appendHead(nil, http.StatusOK), false)
}

// SendHeader sends the head of the response before any message.
func (s *Stream) SendHeader() error { return s.send(nil, false) }

// Send sends a message. It returns when the kernel has it.
func (s *Stream) Send(message []byte) error { return s.send(message, true) }

// Finally has fn called when the stream costs nothing any more: after its status was written, which a peer that does
// not read holds up. There is one for a stream, and its handler sets it.
func (s *Stream) Finally(fn func()) { s.finally = fn }

// Last has a message sent with the status, in one write. It keeps it.
func (s *Stream) Last(message []byte) { s.last = message }
