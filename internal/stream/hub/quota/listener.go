// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"net"
	"sync"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// Listener bounds the connections of a caller at a time; refuse answers and closes what is
// beyond.
type Listener struct {
	net.Listener
	account func(net.Conn) *Account // as it is when a connection comes
	refuse  func(net.Conn, *fault.Fault)
	refused func(wire.Peer, error)
}

// NewListener wraps ln. refused takes what the frontend itself refuses within a connection.
func NewListener(ln net.Listener, account func(net.Conn) *Account, refuse func(net.Conn, *fault.Fault),
	refused func(wire.Peer, error)) *Listener {
	return &Listener{ln, account, refuse, refused}
}

// Refused takes what a frontend itself refuses to a caller, within a connection and
// before a dial: it is counted and recorded.
func (l *Listener) Refused(peer wire.Peer, err error) { l.refused(peer, err) }

func (l *Listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		a := l.account(conn)
		if f := a.Connect(); f != nil {
			l.refuse(conn, f)
			continue
		}
		return &countedConn{conn, sync.OnceFunc(a.Disconnect)}, nil
	}
}

// countedConn gives its place back when it is closed.
type countedConn struct {
	net.Conn
	gone func()
}

func (c *countedConn) Close() error {
	defer c.gone()
	return c.Conn.Close()
}

// CloseWrite ends our direction, or the connection where it has none.
func (c *countedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}

// ReadThrough says that its bytes are those of the connection.
func (c *countedConn) ReadThrough() net.Conn { return c.Conn }
