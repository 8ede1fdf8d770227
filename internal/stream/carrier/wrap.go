// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"errors"
	"net"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Wrap goes between a TCP connection and its TLS. It lets a session collect
// several TLS records into one write that does not block. Until a session
// begins on it, it passes everything through.
func Wrap(raw net.Conn) net.Conn {
	s := &socket{Conn: raw}
	if c, ok := raw.(syscall.Conn); ok {
		if r, err := c.SyscallConn(); err == nil {
			s.raw = r
		}
	}
	s.attempt = s.writeOnce
	return s
}

// socket collects what TLS writes. TLS itself serializes Write; flush and
// tryFlush are called by one goroutine at a time, the owner of the connection's
// turn to send.
type socket struct {
	net.Conn
	raw syscall.RawConn

	mu         sync.Mutex
	collecting bool
	out        []byte // collected, not taken yet

	// Of the flusher alone.
	rest    []byte // taken, not written yet
	buf     []byte // what rest lies in
	attempt func(fd uintptr) bool
	failed  error
}

// mostCollected bounds what TLS may write of its own accord (answers to key
// updates) while the link does not move.
const mostCollected = 1 << 20

var errTooMuch = errors.New("the peer makes TLS answer without reading the answers")

func (s *socket) NetConn() net.Conn { return s.Conn }

// ReadThrough returns Conn, whose bytes Read returns unchanged: internal/stream/splice waits
// for them below TLS.
func (s *socket) ReadThrough() net.Conn { return s.Conn }

func (s *socket) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.collecting {
		return s.Conn.Write(b)
	}
	if len(s.out)+len(b) > mostCollected {
		return 0, errTooMuch
	}
	s.out = append(s.out, b...)
	return len(b), nil
}

// collect begins the session's time.
func (s *socket) collect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.collecting = true
}

// Gather has all records that TLS writes meanwhile leave in one write, which waits for the
// network. It gives the buffer back. It is for connections without a session.
func (s *socket) Gather(buf []byte, write func() error) ([]byte, error) {
	s.mu.Lock()
	s.collecting, s.out = true, buf[:0]
	s.mu.Unlock()
	err := write()
	s.mu.Lock() // until it is written: what TLS writes of its own accord comes after it
	defer s.mu.Unlock()
	b := s.out
	s.collecting, s.out = false, nil
	if err == nil && len(b) > 0 {
		_, err = s.Conn.Write(b)
	}
	return b, err
}

// Gather is that of the socket below a connection, if Wrap has put one there.
func Gather(conn net.Conn, buf []byte, write func() error) ([]byte, error) {
	if s := socketOf(conn); s != nil {
		return s.Gather(buf, write)
	}
	return buf, write()
}

// pending says whether something is collected that nobody has taken.
func (s *socket) pending() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.out) > 0
}

// lend gives TLS a buffer to write into.
func (s *socket) lend(b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.out = append(b[:0], s.out...)
}

// take moves what is collected behind what is left of the last write.
func (s *socket) take() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.rest) == 0 {
		s.rest, s.buf = s.out, s.out
	} else {
		s.rest = append(s.rest, s.out...)
	}
	s.out = nil
}

// back returns the buffer after everything was written, for the next lend.
func (s *socket) back() []byte {
	b := s.buf
	s.buf, s.rest = nil, nil
	return b
}

// tryFlush writes what the kernel takes at once; done says that this was all.
func (s *socket) tryFlush() (done bool, err error) {
	s.take()
	if len(s.rest) == 0 {
		return true, nil
	}
	s.failed = nil
	if err := s.raw.Write(s.attempt); err != nil {
		return false, err
	}
	return len(s.rest) == 0, s.failed
}

// writeOnce is called with the descriptor and never asks to be called again.
func (s *socket) writeOnce(fd uintptr) bool {
	for len(s.rest) > 0 {
		n, err := unix.Write(int(fd), s.rest)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			return true
		case err != nil:
			s.failed = err
			return true
		}
		s.rest = s.rest[n:]
		return true // where that was not all, another call would only say EAGAIN
	}
	return true
}

// flush writes everything and waits for it.
func (s *socket) flush() error {
	s.take()
	if len(s.rest) == 0 {
		return nil
	}
	n, err := s.Conn.Write(s.rest)
	s.rest = s.rest[n:]
	return err
}

// socketOf finds the socket below TLS, nil if there is none.
func socketOf(conn net.Conn) *socket {
	for conn != nil {
		if s, ok := conn.(*socket); ok {
			return s
		}
		c, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			return nil
		}
		conn = c.NetConn()
	}
	return nil
}
