// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"errors"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"time"
)

// Conn is a connection by GRPC. The protocol has no end of one direction: Close ends both, and so does the target's
// end.
type Conn struct {
	tunnel *tunnel
	closed atomic.Bool
}

// Read returns io.EOF if the far side has ended the connection in an orderly way, and an error with the cause
// client.ErrCut if the connection was cut. Reference agents report a reset by the target as an orderly end.
func (c *Conn) Read(b []byte) (int, error) {
	n, err := c.tunnel.out.Read(b)
	switch {
	case errors.Is(err, io.ErrClosedPipe):
		err = net.ErrClosed
	case err == io.EOF:
		err = c.tunnel.end
	}
	return n, err
}

// Write returns when the bytes are on their way to the proxy.
func (c *Conn) Write(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	n, err := c.tunnel.write.Write(b)
	if errors.Is(err, io.ErrClosedPipe) {
		if err = syscall.EPIPE; c.closed.Load() {
			err = net.ErrClosed
		}
	}
	return n, err
}

// Close ends the connection; what was written is still delivered.
func (c *Conn) Close() error {
	if c.closed.Swap(true) {
		return net.ErrClosed
	}
	c.tunnel.close()
	return nil
}

// LocalAddr is of no machine: what dials the target is elsewhere.
func (c *Conn) LocalAddr() net.Addr { return targetAddr("") }

// RemoteAddr is the target as it was passed to DialContext.
func (c *Conn) RemoteAddr() net.Addr { return targetAddr(c.tunnel.target) }

// SetDeadline implements net.Conn.
func (c *Conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetReadDeadline implements net.Conn.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.tunnel.out.SetReadDeadline(t) }

// SetWriteDeadline implements net.Conn.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.tunnel.write.SetWriteDeadline(t) }

type targetAddr string

func (targetAddr) Network() string  { return "tcp" }
func (a targetAddr) String() string { return string(a) }
