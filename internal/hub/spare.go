// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"errors"
	"net"
	"syscall"
	"time"

	"github.com/tombolo-io/tombolo/internal/fault"
	"github.com/tombolo-io/tombolo/internal/limit"
)

// reserve is how many descriptors are kept for who governs the hub: the admin port
// and socket, and the files that they need. A small bound is shared out.
func reserve(most int) int { return min(limit.SpareDescriptors, most/4) }

// sparing is a listener for agents and callers that leaves the reserve alone.
type sparing struct {
	net.Listener
	first int // the lowest descriptor of the reserve
	shed  func(net.Conn)
}

// sparing wraps a listener whose connections may not use up the descriptors.
func (h *Hub) sparing(ln net.Listener) net.Listener {
	_, most := h.descriptors.used(h.now())
	return &sparing{ln, most - reserve(most), func(conn net.Conn) {
		h.refused(conn, fault.New(fault.CodeLimit, "the hub has no descriptor left for agents and callers").
			Whyf("%d are in use, the rest is kept for the admin port", most-reserve(most)))
	}}
}

// Accept gives the next connection. The kernel gives each the lowest descriptor
// that is free (open(2)): one of the reserve says that all below are taken, at the
// price of a look at a number. The error is a passing one for all who accept here:
// they wait a little, while others close theirs.
func (l *sparing) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil || descriptorOf(conn) < l.first {
		return conn, err
	}
	l.shed(conn)
	conn.Close()
	return nil, &net.OpError{Op: "accept", Net: l.Addr().Network(), Addr: l.Addr(), Err: syscall.EMFILE}
}

// descriptorOf is -1 for a connection without one.
func descriptorOf(conn net.Conn) (n int) {
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

// few is a listener on which strangers ask for little: at most so many connections
// are open, and one more costs the oldest its place.
type few struct {
	net.Listener
	conns *strangers
}

func newFew(ln net.Listener, most int, shed func()) *few {
	conns := newStrangers(most, shed)
	conns.hasty = true
	return &few{ln, conns}
}

func (l *few) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.conns.room(time.Now())
	return &oneOfFew{conn, l.conns.enter(conn)}, nil
}

// oneOfFew gives its place back when it is closed.
type oneOfFew struct {
	net.Conn
	place *stranger
}

func (c *oneOfFew) Close() error {
	c.place.gone()
	return c.Conn.Close()
}
