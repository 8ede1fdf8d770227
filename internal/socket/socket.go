// SPDX-License-Identifier: Apache-2.0

// Package socket asks the kernel what a connection does not say of itself. It
// reads and writes nothing.
package socket

import (
	"net"

	"golang.org/x/sys/unix"
)

// HungUp says whether the other end of a unix socket is closed altogether, and not
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
