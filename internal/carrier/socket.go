// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"context"
	"errors"
	"net"
	"time"

	"golang.org/x/sys/unix"
	"syscall"

	"github.com/tombolo-io/tombolo/internal/limit"
)

// Dialer dials a hub. The kernel gives up on unacknowledged data after
// limit.DeadIdle (TCP_USER_TIMEOUT, RFC 5482), should our own pings not have
// noticed first.
func Dialer() *net.Dialer {
	return &net.Dialer{Timeout: limit.Handshake, KeepAliveConfig: keepAlive(), Control: control}
}

// ListenTCP listens for agents and clients. Accepted connections have keepalive
// only: Linux counts a peer that does not read as one that does not acknowledge
// (tcp(7), TCP_USER_TIMEOUT), and a client may pause for as long as it likes.
func ListenTCP(ctx context.Context, address string) (net.Listener, error) {
	lc := net.ListenConfig{KeepAliveConfig: keepAlive()}
	return lc.Listen(ctx, "tcp", address)
}

// MarkSession gives an accepted connection that turned out to be an agent's
// session the same bound as the agent's end: a session is always read.
func MarkSession(conn net.Conn) error {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	return control("", "", raw)
}

func keepAlive() net.KeepAliveConfig {
	return net.KeepAliveConfig{Enable: true, Idle: limit.DeadIdle, Interval: 10 * time.Second, Count: 3}
}

func control(_, _ string, c syscall.RawConn) error {
	var failed error
	err := c.Control(func(fd uintptr) {
		failed = errors.Join(
			unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(limit.DeadIdle.Milliseconds())),
			// What waits in the kernel cannot be overtaken by what is interactive: no
			// more than the path needs.
			unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, limit.NotSent))
	})
	if err != nil {
		return err
	}
	return failed
}

// Unread is how many bytes a TCP connection has for a reader who is not there yet
// (tcp(7), SIOCINQ); 0 of another connection.
func Unread(conn net.Conn) (n int) {
	c, ok := conn.(*net.TCPConn)
	if !ok {
		return 0
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return 0
	}
	if raw.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.SIOCINQ) }) != nil || err != nil {
		return 0
	}
	return n
}
