// SPDX-License-Identifier: Apache-2.0

package listener

import (
	"errors"
	"math"
	"net"
	"syscall"
)

// Reserve is how many descriptors a process keeps for who governs and probes it,
// and for the files that it needs. A small bound is shared out.
func Reserve(most int) int { return min(spareDescriptors, most/4) }

// Spare is how many connections of the port for probes the reserve has room for.
func Spare(most int) int { return min(adminConnections, max(1, Reserve(most)*2/3)) }

// Descriptors is how many this process may have.
func Descriptors() int {
	var bound syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &bound); err != nil {
		return math.MaxInt
	}
	return int(min(bound.Cur, math.MaxInt))
}

// Descriptor is that of a connection, -1 for one without. The kernel gives each
// the lowest that is free (open(2)): one above a bound says that all below are taken.
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
