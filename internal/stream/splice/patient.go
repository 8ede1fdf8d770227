// SPDX-License-Identifier: Apache-2.0

package splice

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
)

// patientConn reads a socket, or TLS over one, without a buffer being held while
// it is silent. An attempt takes a buffer and reads into it without waiting; if
// nothing is there the buffer goes back, and the runtime's poller waits:
//
//	ReadWhenReady ──► attempt ──bytes, an end or an error──► return
//	                  ▲     │
//	                  │   nothing: buffer given back
//	                  │     ▼
//	                  └── poller waits for the descriptor
//
// Reading TLS is the same: crypto/tls reads records through the door (Below),
// which says "nothing there" like a deadline that has passed. That is an error
// after which TLS continues with the half record that it has.
type patientConn struct {
	netConn
	raw     syscall.RawConn
	door    *door // nil: no TLS
	attempt func(fd uintptr) bool

	// Of the call under way; there is one at a time.
	take func() []byte
	give func()
	now  []byte // of ReadNow, which does not wait
	n    int
	err  error
}

// newPatientConn returns nil for a connection that cannot be read like that.
func newPatientConn(n netConn) *patientConn {
	p := &patientConn{netConn: n}
	under := n.Conn
	if r, ok := below(under).(*record); ok {
		p.door, under = &r.door, r.Conn
	}
	s := socketOf(under)
	if s == nil {
		return nil
	}
	var err error
	if p.raw, err = s.SyscallConn(); err != nil {
		return nil
	}
	p.attempt = p.try
	return p
}

// socketOf is the stream socket that c reads. A wrapper that gives its bytes as
// they are says so by ReadThrough.
func socketOf(c net.Conn) syscall.Conn {
	for {
		switch s := c.(type) {
		case *net.TCPConn:
			return s
		case *net.UnixConn:
			if a := s.LocalAddr(); a == nil || a.Network() != "unix" { // a packet without bytes is no end
				return nil
			}
			return s
		case interface{ ReadThrough() net.Conn }:
			c = s.ReadThrough()
		default:
			return nil
		}
	}
}

// ReadWhenReady reads like Read into a buffer that it takes when there is
// something to read, and gives back if there was not. With n > 0 the bytes are in
// the buffer taken last; otherwise none is out.
func (c *patientConn) ReadWhenReady(take func() []byte, give func()) (int, error) {
	c.take, c.give, c.n, c.err = take, give, 0, nil
	err := c.raw.Read(c.attempt)
	c.take, c.give = nil, nil
	if err != nil { // closed, or a deadline
		return 0, readError(below(c.Conn), err)
	}
	return c.n, c.err
}

// ReadNow reads what is there without waiting: 0 bytes and no error say that there is
// nothing yet. Otherwise it is Read.
func (c *patientConn) ReadNow(b []byte) (int, error) {
	c.now, c.n, c.err = b, 0, nil
	err := c.raw.Read(c.attempt)
	c.now = nil
	if err != nil {
		return 0, readError(below(c.Conn), err)
	}
	return c.n, c.err
}

// try reports whether the wait is over.
func (c *patientConn) try(fd uintptr) bool {
	b := c.now
	if b == nil {
		b = c.take()
	}
	if c.door == nil {
		c.n, c.err = readNow(c.Conn, fd, b)
	} else {
		c.door.open(fd)
		c.n, c.err = c.Read(b)
		c.door.close()
	}
	if c.n == 0 && c.now == nil {
		c.give()
	}
	if !errors.Is(c.err, errNothing{}) {
		return true
	}
	c.err = nil
	return c.n > 0 || c.now != nil // with bytes: TLS looks for an alert behind them
}

// door is where TLS reads its connection. While it is open, a read does not wait.
// Whoever opens it reads TLS until it is closed again, and nobody else does.
type door struct {
	opened bool
	fd     uintptr
}

func (d *door) open(fd uintptr) { d.opened, d.fd = true, fd }
func (d *door) close()          { d.opened = false }

func (d *door) read(c net.Conn, b []byte) (int, error) {
	if d.opened {
		return readNow(c, d.fd, b)
	}
	return c.Read(b)
}

// readNow reads what is there. Its errors are those of c.Read, and errNothing.
func readNow(c net.Conn, fd uintptr, b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	for {
		n, err := syscall.Read(int(fd), b)
		switch {
		case err == syscall.EINTR:
		case err == syscall.EAGAIN:
			return 0, errNothing{}
		case err != nil:
			return 0, readError(c, os.NewSyscallError("read", err))
		case n == 0:
			return 0, io.EOF
		default:
			return n, nil
		}
	}
}

// readError is err as a net.Conn's Read gives it.
func readError(c net.Conn, err error) error { return opError("read", c, err) }

func opError(what string, c net.Conn, err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		err = op.Err
	}
	return &net.OpError{Op: what, Net: c.LocalAddr().Network(), Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: err}
}

// errNothing says that reading would have to wait. It is a net.Error, because
// crypto/tls gives a connection up after any other.
type errNothing struct{}

func (errNothing) Error() string   { return "nothing to read yet" }
func (errNothing) Timeout() bool   { return true }
func (errNothing) Temporary() bool { return true }
