// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync/atomic"

	"github.com/tombolo-io/tombolo/internal/base/socket"
)

// ErrCut is the error of a read from a connection that did not end in an orderly way: the
// target, its agent, the hub or a changed policy cut it.
var ErrCut = errors.New("the connection was cut")

// Conn is a connection to a target. Deadlines work as for every net.Conn, and
// CloseWrite ends one direction: the target reads the end and may continue to send.
type Conn struct {
	net.Conn
	raw    net.Conn // below TLS
	below  *transport
	head   *io.LimitedReader
	buf    *bufio.Reader
	target targetAddr
	wrote  atomic.Bool // our direction has ended
}

// Read returns io.EOF only if the target has ended its direction in an orderly way, and
// ErrCut or a network error if the connection was cut. Over a unix socket that holds only
// until CloseWrite: after it an end and a cut look alike, and both return io.EOF.
func (c *Conn) Read(b []byte) (int, error) {
	n, err := c.buf.Read(b)
	if err == io.EOF && (c.below != nil && c.below.ended.Load() ||
		c.below == nil && !c.wrote.Load() && socket.HungUp(c.raw)) {
		err = ErrCut
	}
	return n, err
}

// CloseWrite ends our direction.
func (c *Conn) CloseWrite() error {
	c.wrote.Store(true)
	switch conn := c.Conn.(type) {
	case *tls.Conn:
		return conn.CloseWrite()
	case *net.UnixConn:
		return conn.CloseWrite()
	}
	return c.Close()
}

// RemoteAddr is the target as it was passed to Dial.
func (c *Conn) RemoteAddr() net.Addr { return c.target }

// HubAddr is the address of the hub.
func (c *Conn) HubAddr() net.Addr { return c.raw.RemoteAddr() }

type targetAddr string

func (targetAddr) Network() string  { return "tcp" }
func (t targetAddr) String() string { return string(t) }

// transport notes that the TCP connection has ended. crypto/tls takes that for an orderly
// end if it is between two records (RFC 8446 section 6.1), and does not read beyond
// close_notify.
type transport struct {
	net.Conn
	ended atomic.Bool
}

func (t *transport) Read(b []byte) (int, error) {
	n, err := t.Conn.Read(b)
	if err == io.EOF {
		t.ended.Store(true)
	}
	return n, err
}
