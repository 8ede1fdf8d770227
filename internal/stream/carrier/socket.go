// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"errors"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	kernel "github.com/tombolo-io/tombolo/internal/base/socket"
)

// Dialer dials a hub. The kernel gives up on unacknowledged data after
// limit.DeadIdle (TCP_USER_TIMEOUT, RFC 5482), should our own pings not have
// noticed first.
func Dialer() *net.Dialer {
	return &net.Dialer{Timeout: limit.Handshake, KeepAliveConfig: kernel.KeepAlive(), Control: control}
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

func control(_, _ string, c syscall.RawConn) error {
	var failed error
	err := c.Control(func(fd uintptr) {
		failed = errors.Join(
			unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(limit.DeadIdle.Milliseconds())),
			// What waits in the kernel cannot be overtaken by what is interactive: no
			// more than the path needs.
			unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, notSent))
		// No connection fails for want of these, which are of Linux 6.15: without them a loss costs what it always did.
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_RTO_MIN_US, micro(leastRTO))
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_DELACK_MAX_US, micro(mostDelayedACK))
	})
	if err != nil {
		return err
	}
	return failed
}

func micro(d time.Duration) int { return int(d.Microseconds()) }
