// SPDX-License-Identifier: Apache-2.0

package socket_test

import (
	"io"
	"net"
	"path/filepath"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/socket"
)

func pair(t *testing.T, network, address string) (near, far net.Conn) {
	t.Helper()
	ln, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if far, err = net.Dial(network, ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if near, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close(); far.Close() })
	return near, far
}

// ended reads the end of what the other side sends.
func ended(t *testing.T, c net.Conn) {
	t.Helper()
	if n, err := io.Copy(io.Discard, c); n != 0 || err != nil {
		t.Fatalf("%d bytes, %v", n, err)
	}
}

func TestHungUp(t *testing.T) {
	near, far := pair(t, "unix", filepath.Join(t.TempDir(), "s"))
	if socket.HungUp(near) {
		t.Error("an open socket hung up")
	}
	if err := far.(*net.UnixConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	ended(t, near)
	if socket.HungUp(near) {
		t.Error("a socket whose other end may still read hung up")
	}
	far.Close()
	if !socket.HungUp(near) {
		t.Error("a closed socket has not hung up")
	}
	near.Close()
	if socket.HungUp(near) {
		t.Error("our own closed end hung up")
	}
}

// TestHungUpOfOthers: TCP has a reset, and is not asked.
func TestHungUpOfOthers(t *testing.T) {
	near, far := pair(t, "tcp", "127.0.0.1:0")
	far.Close()
	ended(t, near)
	if socket.HungUp(near) {
		t.Error("a TCP connection hung up")
	}
}

func TestUnread(t *testing.T) {
	near, far := pair(t, "tcp", "127.0.0.1:0")
	if n := socket.Unread(near); n != 0 {
		t.Errorf("%d bytes of nothing", n)
	}
	if _, err := far.Write([]byte("12345")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(near, make([]byte, 2)); err != nil { // they have come
		t.Fatal(err)
	}
	if n := socket.Unread(near); n != 3 {
		t.Errorf("%d bytes are unread", n)
	}
	other, _ := pair(t, "unix", filepath.Join(t.TempDir(), "s"))
	if n := socket.Unread(other); n != 0 {
		t.Errorf("%d bytes of a unix socket", n)
	}
}
