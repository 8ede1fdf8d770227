// SPDX-License-Identifier: Apache-2.0

// Package yamux puts libp2p's yamux behind carrier.Session. It is the baseline
// of make bench, and a second implementation that keeps the contract tests in
// carriertest honest. It is not part of the product: it does not count unread
// bytes, and it does not protect against a hostile peer.
package yamux

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/libp2p/go-yamux/v5"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
)

// Client makes the dialling end of a session over conn. Of the options only
// Incoming counts.
func Client(conn net.Conn, o carrier.Options) (carrier.Session, error) {
	return newSession(conn, o, yamux.Client)
}

// Server makes the accepting end.
func Server(conn net.Conn, o carrier.Options) (carrier.Session, error) {
	return newSession(conn, o, yamux.Server)
}

type maker func(net.Conn, *yamux.Config, func() (yamux.MemoryManager, error)) (*yamux.Session, error)

func newSession(conn net.Conn, o carrier.Options, mk maker) (carrier.Session, error) {
	m := &meter{Conn: conn, begin: time.Now()}
	s, err := mk(m, settings(uint32(o.Incoming)), nil)
	if err != nil {
		return nil, err
	}
	y := &session{s: s, conn: m, accepted: make(chan *yamux.Stream)}
	go y.accept()
	return y, nil
}

// settings turns the keepalive off, as the product does its own, and lets windows
// grow from 256 KiB to 16 MiB, as those of our mux do.
func settings(incoming uint32) *yamux.Config {
	c := yamux.DefaultConfig()
	c.EnableKeepAlive = false
	c.MaxIncomingStreams = incoming
	c.InitialStreamWindowSize = 256 << 10
	c.MaxStreamWindowSize = 16 << 20
	c.MaxMessageSize = 32 << 10
	c.ConnectionWriteTimeout = limit.DeadIdle
	c.LogOutput = io.Discard
	return c
}

type session struct {
	s        *yamux.Session
	conn     *meter
	accepted chan *yamux.Stream
	buffers  sync.Pool // of *[]byte, for copies
}

// accept takes streams from the library, whose own accept knows no context. It
// ends with the session.
func (y *session) accept() {
	defer close(y.accepted)
	for {
		s, err := y.s.AcceptStream()
		if err != nil {
			return
		}
		select {
		case y.accepted <- s:
		case <-y.s.CloseChan():
			return
		}
	}
}

func (y *session) OpenStream(ctx context.Context, first []byte) (carrier.Stream, error) {
	if err := ctx.Err(); err != nil { // the library would leak the stream
		return nil, err
	}
	s, err := y.s.OpenStream(ctx)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, yamux.ErrRemoteGoAway):
		return nil, fault.New(fault.CodeDraining, "the peer takes no new streams")
	default:
		return nil, lost(err)
	}
	st := &stream{Stream: s, buffers: &y.buffers}
	if len(first) == 0 {
		return st, nil
	}
	stop := context.AfterFunc(ctx, func() { s.SetWriteDeadline(time.Unix(1, 0)) })
	_, err = s.Write(first)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		st.Reset(0)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, streamError(err)
	}
	return st, nil
}

func (y *session) AcceptStream(ctx context.Context) (carrier.Stream, error) {
	select {
	case s, ok := <-y.accepted:
		if !ok || y.s.IsClosed() { // both were ready
			return nil, fault.New(fault.CodeSessionLost, "the session has ended")
		}
		return &stream{Stream: s, buffers: &y.buffers}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Close closes the connection first: a peer that no longer reads must not
// delay the end by the time that a farewell takes to write.
func (y *session) Close() error {
	err := y.conn.Close()
	return errors.Join(err, y.s.Close())
}

func (y *session) GoAway() { y.s.GoAway() }

func (y *session) Attach(net.Conn) error {
	return fault.New(fault.CodeLimit, "a yamux session has one connection")
}

func (y *session) Info() carrier.Info {
	return carrier.Info{Connections: 1, Streams: y.s.NumStreams()}
}

func (y *session) Done() <-chan struct{} { return y.s.CloseChan() }

func (y *session) RemoteAddr() net.Addr { return y.conn.RemoteAddr() }

func (y *session) Traffic() carrier.Traffic {
	return carrier.Traffic{
		Received: y.conn.in.Load(), Sent: y.conn.out.Load(),
		LastReceived: y.conn.begin.Add(time.Duration(y.conn.last.Load())),
	}
}

type stream struct {
	*yamux.Stream
	buffers *sync.Pool

	mu    sync.Mutex
	ended bool // by us, in both directions; no deadline is set any more
}

// Read hides the library's habit of giving bytes and the failure to grow the
// window in one answer: that failure may be io.EOF when the session ended, and
// would pass for the end of the stream. The next Read says what happened.
func (s *stream) Read(b []byte) (int, error) {
	if s.over() {
		return 0, net.ErrClosed
	}
	n, err := s.Stream.Read(b)
	if n > 0 {
		return n, nil
	}
	if err == nil || err == io.EOF {
		return n, err
	}
	return n, s.failed(err)
}

func (s *stream) Write(b []byte) (int, error) {
	if s.over() {
		return 0, net.ErrClosed
	}
	n, err := s.Stream.Write(b)
	return n, s.failed(err)
}

// failed translates an error; a deadline that end has set means that the stream is closed.
func (s *stream) failed(err error) error {
	if err == yamux.ErrTimeout && s.over() {
		return net.ErrClosed
	}
	return streamError(err)
}

func (s *stream) over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

func (s *stream) CopyFrom(src io.Reader, moved func(int)) (srcErr, err error) {
	return s.pump(s, src, moved)
}

func (s *stream) CopyTo(dst io.Writer, moved func(int)) (dstErr, err error) {
	err, dstErr = s.pump(dst, s, moved)
	return dstErr, err
}

// pump copies until one side fails. A patient source is read without holding a buffer
// while it is silent; for any other, the buffer is small until much comes at once.
func (s *stream) pump(dst io.Writer, src io.Reader, moved func(int)) (srcErr, dstErr error) {
	var held *[]byte
	take := func() []byte {
		if held, _ = s.buffers.Get().(*[]byte); held == nil {
			b := make([]byte, limit.CopyBuffer)
			held = &b
		}
		return *held
	}
	give := func() { s.buffers.Put(held); held = nil }
	patient, isPatient := src.(carrier.Patient)
	small := make([]byte, limit.WaitBuffer)
	for large := false; ; {
		b := small
		var n int
		switch {
		case isPatient:
			if n, srcErr = patient.ReadWhenReady(take, give); n > 0 {
				b = *held
			}
		case large:
			b = take()
			n, srcErr = src.Read(b)
		default:
			n, srcErr = src.Read(b)
		}
		large = n >= limit.WaitBuffer
		if n > 0 {
			if n, dstErr = dst.Write(b[:n]); n > 0 && moved != nil {
				moved(n)
			}
		}
		if held != nil {
			give()
		}
		if srcErr != nil || dstErr != nil {
			return srcErr, dstErr
		}
	}
}

func (s *stream) CloseWrite() error {
	if s.over() {
		return net.ErrClosed
	}
	return streamError(s.Stream.CloseWrite())
}

// Close ends our direction in order and then resets the rest: the library's own
// Close would leave a peer that still writes waiting for a window for ever.
func (s *stream) Close() error {
	s.end(func() {
		s.Stream.CloseWrite()
		s.Stream.ResetWithError(0)
	})
	return nil
}

func (s *stream) Reset(code uint32) error {
	s.end(func() { s.Stream.ResetWithError(code) })
	return nil
}

// end wakes readers and writers, and waits for nothing: the library would wait for
// a place in its queue, which a peer that does not read never gives.
func (s *stream) end(send func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	s.ended = true
	s.Stream.SetDeadline(time.Unix(1, 0))
	go send()
}

func (s *stream) SetDeadline(t time.Time) error {
	return s.until(t, s.Stream.SetDeadline)
}

func (s *stream) SetReadDeadline(t time.Time) error {
	return s.until(t, s.Stream.SetReadDeadline)
}

func (s *stream) SetWriteDeadline(t time.Time) error {
	return s.until(t, s.Stream.SetWriteDeadline)
}

func (s *stream) until(t time.Time, set func(time.Time) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended { // the deadline that end has set stays
		return nil
	}
	return set(t)
}

// streamError translates the library's errors; none of them is or wraps io.EOF.
func streamError(err error) error {
	var reset *yamux.StreamError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &reset) && reset.Remote:
		return &carrier.ResetError{Code: reset.ErrorCode}
	case reset != nil, err == yamux.ErrStreamClosed:
		return net.ErrClosed
	case err == yamux.ErrTimeout:
		return os.ErrDeadlineExceeded
	}
	return lost(err)
}

// lost codes the end of the session. It cuts the chain of causes on purpose:
// io.EOF of the connection is not io.EOF of a stream.
func lost(err error) error {
	return fault.New(fault.CodeSessionLost, "the session has ended").Whyf("%v", err)
}

// meter counts what a connection carries and remembers when the last byte came.
type meter struct {
	net.Conn
	in, out, last atomic.Int64
	begin         time.Time
}

func (m *meter) Read(b []byte) (int, error) {
	n, err := m.Conn.Read(b)
	if n > 0 {
		m.in.Add(int64(n))
		m.last.Store(int64(time.Since(m.begin)))
	}
	return n, err
}

func (m *meter) Write(b []byte) (int, error) {
	n, err := m.Conn.Write(b)
	m.out.Add(int64(n))
	return n, err
}
