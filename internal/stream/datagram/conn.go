// SPDX-License-Identifier: Apache-2.0

package datagram

import (
	"cmp"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// Conn is a connected socket for datagrams as one side of a splice: what is read from it, and written to it, are
// datagrams as they are on a stream. One goroutine may read while another one writes.
type Conn struct {
	net.Conn
	split Splitter
	left  []byte // of a datagram that its reader had no room for
}

// NewConn is a Conn of a connected socket.
func NewConn(socket net.Conn) *Conn { return &Conn{Conn: socket} }

// Write sends the datagrams that b completes. One that the network does not take, such as for its size, is lost.
func (c *Conn) Write(b []byte) (int, error) {
	err := c.split.Split(b, func(d []byte) error {
		_, err := c.Conn.Write(d)
		if errors.Is(err, net.ErrClosed) {
			return err
		}
		return refusal(err)
	})
	if err != nil {
		return 0, err
	}
	return len(b), nil
}

// buffers for a whole datagram: a socket that is waited for has none.
var buffers = sync.Pool{New: func() any { return new([head + Most + 1]byte) }}

// Read reads what has come next. While nobody reads, the kernel drops what does not fit into the socket's buffer.
func (c *Conn) Read(b []byte) (int, error) {
	if len(c.left) == 0 {
		if err := wait(c.Conn); err != nil {
			return 0, ended(err)
		}
		buf := buffers.Get().(*[head + Most + 1]byte)
		defer buffers.Put(buf)
		n, err := c.Conn.Read(buf[head:])
		if err != nil {
			return 0, ended(err)
		}
		n = min(n, Most)
		buf[0], buf[1] = byte(n>>8), byte(n)
		n += head
		m := copy(b, buf[:n])
		c.left = append(c.left, buf[m:n]...)
		return m, nil
	}
	n := copy(b, c.left)
	if c.left = c.left[n:]; len(c.left) == 0 {
		c.left = nil
	}
	return n, nil
}

// ended is what a reader sees of an error of the socket: where it was closed, an orderly end.
func ended(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return io.EOF
	}
	return cmp.Or(refusal(err), err)
}

// CloseWrite ends the flow: nobody has anything more to ask.
func (c *Conn) CloseWrite() error { return c.Close() }

// Reset ends it, too.
func (c *Conn) Reset(uint32) error { return c.Close() }

// wait waits until something can be read, without room for it.
func wait(c net.Conn) error {
	s, ok := c.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Read(func(fd uintptr) bool {
		_, _, failed = unix.Recvfrom(int(fd), nil, unix.MSG_PEEK|unix.MSG_DONTWAIT)
		return !errors.Is(failed, unix.EAGAIN)
	})
	return cmp.Or(err, failed)
}

// refusal is the fault of an error by which the network says that nobody is there; nil for others.
func refusal(err error) error {
	for _, e := range []unix.Errno{unix.ECONNREFUSED, unix.EHOSTUNREACH, unix.ENETUNREACH} {
		if errors.Is(err, e) {
			return fault.New(fault.CodeDialRefused, "the target takes no datagrams").Because(e)
		}
	}
	return nil
}
