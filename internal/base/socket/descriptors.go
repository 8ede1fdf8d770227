// SPDX-License-Identifier: Apache-2.0

package socket

import (
	"errors"
	"math"
	"net"
	"syscall"
)

// spareDescriptors are reserved file descriptors that agents and callers of a hub, targets of
// an agent and pipes of a splice cannot take: for connections of the admin or health port, and
// half as many for the admin socket, the agent's next session and files.
const spareDescriptors = 96

// Reserve is how many of most file descriptors a process keeps for its admin and health
// ports and for files: spareDescriptors, or a quarter of a small bound.
func Reserve(most int) int { return min(spareDescriptors, most/4) }

// Descriptors is the process's limit of file descriptors.
func Descriptors() int {
	var bound syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &bound); err != nil {
		return math.MaxInt
	}
	return int(min(bound.Cur, math.MaxInt))
}

// Descriptor is the file descriptor of a connection, -1 for one without. The kernel
// assigns the lowest free one (open(2)): one above a bound shows that all below are taken.
func Descriptor(conn net.Conn) (n int) {
	n = -1
	c, ok := conn.(syscall.Conn)
	if !ok {
		return n
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return n
	}
	if err := raw.Control(func(fd uintptr) { n = int(fd) }); err != nil && !errors.Is(err, net.ErrClosed) {
		return -1
	}
	return n
}
