// SPDX-License-Identifier: Apache-2.0

package splice

import (
	"cmp"
	"errors"
	"io"
	"net"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/stream/datagram"
)

// datagrams is a connected socket for datagrams as one side of a splice.
type datagrams struct {
	net.Conn
	splicer *Splicer
	split   datagram.Splitter
	left    []byte // of a datagram that its reader had no room for
}

// Datagrams is a connected socket as one side of a splice: what is read from it, and written to it, are datagrams as
// they are on a stream. One goroutine may read while another one writes.
func (s *Splicer) Datagrams(socket net.Conn) Conn { return &datagrams{Conn: socket, splicer: s} }

// Write sends the datagrams that b completes. One that the network does not take, such as for its size, is lost.
func (c *datagrams) Write(b []byte) (int, error) {
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

// Read reads what has come next. While nobody reads, the kernel drops what does not fit into the socket's buffer.
func (c *datagrams) Read(b []byte) (int, error) {
	if len(c.left) == 0 {
		if err := wait(c.Conn); err != nil {
			return 0, ended(err)
		}
		buf := c.splicer.whole.Get().(*[]byte) // none is held while nothing comes
		defer c.splicer.whole.Put(buf)
		n, err := c.Conn.Read(*buf)
		if err != nil {
			return 0, ended(err)
		}
		n = min(n, datagram.Most)
		all := datagram.Head(n)
		m := copy(b, all[:])
		k := copy(b[m:], (*buf)[:n])
		c.left = append(append(c.left, all[m:]...), (*buf)[k:n]...)
		return m + k, nil
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
func (c *datagrams) CloseWrite() error { return c.Close() }

// Reset ends it, too.
func (c *datagrams) Reset(uint32) error { return c.Close() }

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
