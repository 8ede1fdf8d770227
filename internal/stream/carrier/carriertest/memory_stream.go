// SPDX-License-Identifier: Apache-2.0

package carriertest

import (
	"io"
	"net"
	"time"

	"github.com/tombolo-io/tombolo/internal/stream/carrier"
)

// memoryStream is one end of a stream of the twin. Its two queues are those of
// the other end, crossed.
type memoryStream struct {
	session  *memorySession
	other    *memoryStream
	in, out  *queue
	incoming bool // the peer opened it
	accepted bool
	finished bool // this end has closed or reset it
}

// count follows the bytes that wait for this end to read them.
func (s *memoryStream) count(n int) {
	s.session.unread += n
	if n > 0 {
		s.session.peer.moved(n)
	}
}

func (s *memoryStream) Read(b []byte) (int, error)  { return s.in.read(b) }
func (s *memoryStream) Write(b []byte) (int, error) { return s.out.write(b) }

func (s *memoryStream) CloseWrite() error {
	s.session.pair.mu.Lock()
	defer s.session.pair.mu.Unlock()
	return s.closeWrite()
}

func (s *memoryStream) closeWrite() error {
	switch {
	case s.out.writeError == nil:
		s.session.moved(0)
		s.out.finish(io.EOF)
		s.out.block(net.ErrClosed)
		s.settle()
	case s.out.writeError != net.ErrClosed:
		return s.out.writeError
	}
	return nil
}

func (s *memoryStream) Close() error {
	s.session.pair.mu.Lock()
	defer s.session.pair.mu.Unlock()
	s.closeWrite()
	s.reset(0)
	return nil
}

func (s *memoryStream) Reset(code uint32) error {
	s.session.pair.mu.Lock()
	defer s.session.pair.mu.Unlock()
	s.reset(code)
	return nil
}

// The following need the lock.

// reset ends this end for good, and the other one unless both had finished.
func (s *memoryStream) reset(code uint32) {
	if s.finished {
		return
	}
	s.finished = true
	over := s.out.writeError != nil && s.in.readOver() || s.session.ended
	s.in.refuse(net.ErrClosed)
	s.out.block(net.ErrClosed)
	if !over {
		s.session.moved(0)
		s.other.wasReset(code)
	}
	s.settle()
}

// wasReset is the peer's reset: what it wrote before can be read, then comes the
// code; what we write fails at once.
func (s *memoryStream) wasReset(code uint32) {
	err := &carrier.ResetError{Code: code}
	s.in.finish(err)
	s.out.block(err)
	s.settle()
}

// lost is the end of the session under the stream. A peer that had finished is
// still read to its end.
func (s *memoryStream) lost() {
	if !s.in.readOver() {
		s.in.refuse(sessionLost())
	}
	s.out.block(sessionLost())
}

// settle forgets a stream at the ends where both directions are over.
func (s *memoryStream) settle() {
	for _, end := range []*memoryStream{s, s.other} {
		_, live := end.session.streams[end]
		if !live || !end.in.readOver() || end.out.writeError == nil {
			continue
		}
		delete(end.session.streams, end)
		if end.incoming && end.accepted {
			end.session.incoming--
		}
	}
}

func (s *memoryStream) LocalAddr() net.Addr  { return s.session.addr }
func (s *memoryStream) RemoteAddr() net.Addr { return s.session.peer.addr }

func (s *memoryStream) SetDeadline(t time.Time) error {
	s.SetReadDeadline(t)
	return s.SetWriteDeadline(t)
}

func (s *memoryStream) SetReadDeadline(t time.Time) error {
	s.in.setDeadline(&s.in.readBy, t)
	return nil
}

func (s *memoryStream) SetWriteDeadline(t time.Time) error {
	s.out.setDeadline(&s.out.writeBy, t)
	return nil
}

func (s *memoryStream) CopyFrom(src io.Reader, moved func(int)) (srcErr, err error) {
	read := s.session.pair.reader(src)
	defer read.release()
	for {
		b, srcErr := read.next()
		if len(b) > 0 {
			n, err := s.Write(b)
			if n > 0 && moved != nil {
				moved(n)
			}
			if err != nil {
				return nil, err
			}
		}
		if srcErr != nil {
			return srcErr, nil
		}
	}
}

func (s *memoryStream) CopyTo(dst io.Writer, moved func(int)) (dstErr, err error) {
	read := s.session.pair.reader(s)
	defer read.release()
	for {
		b, err := read.next()
		if len(b) > 0 {
			n, dstErr := dst.Write(b)
			if n > 0 && moved != nil {
				moved(n)
			}
			if dstErr == nil && n < len(b) {
				dstErr = io.ErrShortWrite
			}
			if dstErr != nil {
				return dstErr, nil
			}
		}
		if err != nil {
			return nil, err
		}
	}
}

// chunks reads a source into pooled buffers, none of which is held while a
// Patient source is silent.
type chunks struct {
	pair *memoryPair
	src  io.Reader
	buf  *[]byte // nil: none is held
}

func (p *memoryPair) reader(src io.Reader) *chunks { return &chunks{pair: p, src: src} }

// next gives bytes that are valid until the following call, and what came after them.
func (c *chunks) next() ([]byte, error) {
	patient, ok := c.src.(carrier.Patient)
	if !ok {
		b := c.take()
		n, err := c.src.Read(b)
		return b[:n], err
	}
	c.release()
	n, err := patient.ReadWhenReady(c.take, c.release)
	if n == 0 {
		return nil, err
	}
	return (*c.buf)[:n], err
}

func (c *chunks) take() []byte {
	if c.buf == nil {
		c.buf = c.pair.buffers.Get().(*[]byte)
	}
	return *c.buf
}

func (c *chunks) release() {
	if c.buf != nil {
		c.pair.buffers.Put(c.buf)
		c.buf = nil
	}
}
