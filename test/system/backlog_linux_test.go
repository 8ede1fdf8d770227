// SPDX-License-Identifier: Apache-2.0

package system

import (
	"errors"
	"net"
	"os"
	"syscall"
	"testing"
	"time"
)

// fillBacklog makes a listener drop every further SYN: its queue is cut to the
// shortest and filled, and nobody accepts.
func fillBacklog(t *testing.T, ln *net.TCPListener) {
	t.Helper()
	raw, err := ln.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = syscall.Listen(int(fd), 0) }); err != nil || failed != nil {
		t.Fatal(err, failed)
	}
	for range 32 {
		conn, err := net.DialTimeout("tcp", ln.Addr().String(), 300*time.Millisecond)
		if errors.Is(err, os.ErrDeadlineExceeded) || isTimeout(err) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		closing(t, conn)
	}
	t.Fatal("the queue of the listener does not fill")
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}
