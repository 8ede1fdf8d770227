// SPDX-License-Identifier: Apache-2.0

// Package socket asks the kernel what a connection does not say of itself, and says
// how it is to look after one. It reads and writes nothing.
package socket

import (
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// HungUp reports whether the other end of a unix socket is closed altogether, and not
// only in its direction (poll(2), POLLHUP): a unix socket knows no reset. Of another
// connection it knows nothing.
func HungUp(c net.Conn) bool {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return false
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return false
	}
	up := false
	err = raw.Control(func(fd uintptr) {
		polled := []unix.PollFd{{Fd: int32(fd)}}
		n, err := unix.Poll(polled, 0)
		up = err == nil && n == 1 && polled[0].Revents&unix.POLLHUP != 0
	})
	return err == nil && up
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

// KeepAlive has the kernel notice that the other end of a silent TCP connection is gone.
func KeepAlive() net.KeepAliveConfig {
	return net.KeepAliveConfig{Enable: true, Idle: limit.DeadIdle, Interval: 10 * time.Second, Count: 3}
}

// Mark has all that a socket sends bear a mark (socket(7), SO_MARK), which rules of
// routing and nftables heed. It takes a permission.
func Mark(c syscall.RawConn, mark uint32) error {
	var failed error
	if err := c.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, int(mark))
	}); err != nil {
		return err
	}
	return failed
}
