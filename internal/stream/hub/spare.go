// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"net"
	"syscall"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/listener"
)

// sparing is a listener for agents and callers that leaves the reserve alone.
type sparing struct {
	net.Listener
	first int // the lowest descriptor of the reserve
	shed  func(net.Conn)
}

// sparing wraps a listener whose connections may not use up the descriptors.
func (h *Hub) sparing(ln net.Listener) net.Listener {
	_, most := h.descriptors.used(h.now())
	return &sparing{ln, most - listener.Reserve(most), func(conn net.Conn) {
		h.refused(party{}, conn, fault.New(fault.CodeLimit, "the hub has no descriptor left for agents and callers").
			Whyf("%d are in use, the rest is kept for the admin port", most-listener.Reserve(most)))
	}}
}

// Accept gives the next connection. The kernel gives each the lowest descriptor
// that is free (open(2)): one of the reserve says that all below are taken, at the
// price of a look at a number. The error is a passing one for all who accept here:
// they wait a little, while others close theirs.
func (l *sparing) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil || listener.Descriptor(conn) < l.first {
		return conn, err
	}
	l.shed(conn)
	conn.Close()
	return nil, &net.OpError{Op: "accept", Net: l.Addr().Network(), Addr: l.Addr(), Err: syscall.EMFILE}
}
