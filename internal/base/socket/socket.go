// SPDX-License-Identifier: Apache-2.0

// Package socket reads and sets socket properties that package net does not expose. It
// reads and writes no data.
package socket

import (
	"errors"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// HungUp reports whether the other end of a unix socket is closed in both directions
// (poll(2), POLLHUP): a unix socket has no reset. It is false for other connections.
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

// Unread is the number of received bytes that nobody has read yet from a TCP connection
// (tcp(7), SIOCINQ); 0 for other connections.
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

// KeepAlive is the keepalive configuration that detects a dead peer of a silent TCP
// connection.
func KeepAlive() net.KeepAliveConfig {
	return net.KeepAliveConfig{Enable: true, Idle: limit.DeadIdle, Interval: 10 * time.Second, Count: 3}
}

// SetKeepAlive is KeepAlive for a socket without a net.Conn. Sockets that are accepted from it have it too.
func SetKeepAlive(c syscall.RawConn) error {
	cfg := KeepAlive()
	seconds := func(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }
	var failed error
	if err := c.Control(func(fd uintptr) {
		failed = errors.Join(
			unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1),
			unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, seconds(cfg.Idle)),
			unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, seconds(cfg.Interval)),
			unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_KEEPCNT, cfg.Count),
		)
	}); err != nil {
		return err
	}
	return failed
}

// Mark sets the mark of all packets of a socket (socket(7), SO_MARK), which routing rules
// and nftables can match. It needs CAP_NET_ADMIN or CAP_NET_RAW.
func Mark(c syscall.RawConn, mark uint32) error {
	var failed error
	if err := c.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, int(mark))
	}); err != nil {
		return err
	}
	return failed
}
