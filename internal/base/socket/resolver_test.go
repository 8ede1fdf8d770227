// SPDX-License-Identifier: Apache-2.0

package socket_test

import (
	"errors"
	"net"
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/base/socket"
)

// TestQueriesBearTheMark: what asks for a name goes where the program's other packets go,
// whatever lies around the resolver.
func TestQueriesBearTheMark(t *testing.T) {
	server, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	const mark = 0x20
	r := socket.Resolver(mark)
	conn, err := r.Dial(t.Context(), "udp", server.LocalAddr().String())
	if err != nil || !r.PreferGo {
		t.Fatalf("%v, by Go's own resolver: %v", err, r.PreferGo)
	}
	defer conn.Close()
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	got, permitted := 0, error(nil)
	err = raw.Control(func(fd uintptr) {
		got, _ = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK)
		permitted = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, mark)
	})
	if err != nil || permitted == nil && got != mark {
		t.Errorf("the mark is %#x (%v)", got, err)
	}
}

func TestPermitted(t *testing.T) {
	other := errors.New("other")
	for _, c := range []struct{ in, want error }{{nil, nil}, {os.ErrPermission, nil}, {syscall.EPERM, nil}, {other, other}} {
		if got := socket.Permitted(c.in); !errors.Is(got, c.want) || (got == nil) != (c.want == nil) {
			t.Errorf("%v: %v", c.in, got)
		}
	}
}
