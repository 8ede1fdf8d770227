// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// UnixPeer asks the kernel who is at the other end of a unix socket (unix(7),
// SO_PEERCRED): the process that connected, whoever uses the descriptor now. Of
// another connection it knows nothing.
func UnixPeer(conn net.Conn) (p wire.Peer) {
	if through, ok := conn.(interface{ ReadThrough() net.Conn }); ok {
		conn = through.ReadThrough()
	}
	c, ok := conn.(*net.UnixConn)
	if !ok {
		return p
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return p
	}
	var cred *syscall.Ucred
	failed := raw.Control(func(fd uintptr) {
		cred, err = syscall.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if failed != nil || err != nil {
		return p
	}
	return wire.Peer{Known: true, UID: cred.Uid, GID: cred.Gid, PID: cred.Pid}
}
