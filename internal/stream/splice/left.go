// SPDX-License-Identifier: Apache-2.0

package splice

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// Peer asks the kernel whether the other end of a TCP or unix connection, or of TLS
// over one, is still there, while nobody reads or writes.
type Peer struct{ raw syscall.RawConn }

// PeerOf is of a connection as Net takes it; of another one nothing is known.
func PeerOf(c net.Conn) Peer {
	if r, ok := below(c).(*record); ok {
		c = r.Conn
	}
	var p Peer
	if s := socketOf(c); s != nil {
		p.raw, _ = s.SyscallConn()
	}
	return p
}

// Left says what the peer does no more (poll(2)): send, for it has ended its direction
// and all that it sent was read, or take bytes, for it has closed or reset the connection.
// Of a TCP peer that has closed the latter is known once something was sent to it, as
// ever. Where we have ended our direction as well, it says nothing of the peer.
func (p Peer) Left() (sends, takes bool) {
	if p.raw == nil {
		return false, false
	}
	err := p.raw.Control(func(fd uintptr) {
		f := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		if _, err := unix.Poll(f, 0); err == nil {
			takes = f[0].Revents&(unix.POLLHUP|unix.POLLERR) != 0
			sends = f[0].Revents&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR) != 0 && !waits(int(fd))
		}
	})
	return sends || err != nil, takes || err != nil // closed by ourselves
}

// waits reports whether bytes came that were not read, beyond the last words of TLS.
func waits(fd int) bool {
	n, err := unix.IoctlGetInt(fd, unix.SIOCINQ)
	return err == nil && n > lastWords
}
