// SPDX-License-Identifier: Apache-2.0

package system

import (
	"io"
	"net"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// named answers a byte of the caller with its name and the end.
func named(t *testing.T, name string) *runtest.Target {
	return runtest.Serve(t, func(c *net.TCPConn) {
		io.ReadFull(c, make([]byte, 1))
		io.WriteString(c, name)
		c.CloseWrite()
		io.Copy(io.Discard, c)
		c.Close()
	})
}

// greeting speaks first: it greets and ends.
func greeting(t *testing.T, text string) *runtest.Target {
	return runtest.Serve(t, func(c *net.TCPConn) {
		io.WriteString(c, text)
		c.CloseWrite()
		io.Copy(io.Discard, c)
		c.Close()
	})
}

// replyAfterEnd reads all up to the caller's half-close and answers only then.
func replyAfterEnd(t *testing.T) *runtest.Target {
	return runtest.Serve(t, func(c *net.TCPConn) {
		all, err := io.ReadAll(c)
		if err == nil {
			c.Write(append([]byte("got "), all...))
		}
		c.Close()
	})
}

// flood writes for ever; sink reads nothing.
func flood(t *testing.T) *runtest.Target {
	return runtest.Serve(t, func(c *net.TCPConn) {
		buf := make([]byte, 64<<10)
		for {
			if _, err := c.Write(buf); err != nil {
				return
			}
		}
	})
}

func sink(t *testing.T) *runtest.Target {
	return runtest.Serve(t, func(*net.TCPConn) {})
}
