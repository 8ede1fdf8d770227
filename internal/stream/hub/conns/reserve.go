// SPDX-License-Identifier: Apache-2.0

package conns

import (
	"net"
	"syscall"

	"github.com/tombolo-io/tombolo/internal/base/socket"
)

// reserving is a listener for agents and callers that leaves the descriptors of the reserve
// to the admin port.
type reserving struct {
	net.Listener
	first int // the lowest descriptor of the reserve
	shed  func(net.Conn)
}

// Reserve wraps a listener whose connections may not use the last of so many
// descriptors. shed is called with a connection before it is closed.
func Reserve(ln net.Listener, most int, shed func(net.Conn)) net.Listener {
	return &reserving{ln, most - socket.Reserve(most), shed}
}

// Accept gives the next connection. The kernel gives each the lowest free descriptor
// (open(2)), so one within the reserve says that all below are taken. The error is a
// temporary one: an accept loop waits a little while other connections close.
func (l *reserving) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil || socket.Descriptor(conn) < l.first {
		return conn, err
	}
	l.shed(conn)
	conn.Close()
	return nil, &net.OpError{Op: "accept", Net: l.Addr().Network(), Addr: l.Addr(), Err: syscall.EMFILE}
}
