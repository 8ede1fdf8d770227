// SPDX-License-Identifier: Apache-2.0

package splice

import (
	"os"
	"syscall"
)

// promptConn is a socket that can also be written without waiting. TLS cannot:
// what it has encrypted has to be sent.
type promptConn struct {
	*patientConn
	attemptWrite func(fd uintptr) bool

	// Of the call under way; there is one at a time.
	out     []byte
	written int
	failed  error
}

func newPromptConn(p *patientConn) *promptConn {
	c := &promptConn{patientConn: p}
	c.attemptWrite = c.writeOnce
	return c
}

// WriteNow writes what the socket takes at once: with n < len(b) and no error the
// rest would have to wait. Its errors are those of Write.
func (c *promptConn) WriteNow(b []byte) (int, error) {
	c.out, c.written, c.failed = b, 0, nil
	err := c.raw.Write(c.attemptWrite)
	c.out = nil
	if err != nil { // closed, or a deadline
		return 0, opError("write", c.Conn, err)
	}
	return c.written, c.failed
}

// writeOnce never asks to be called again.
func (c *promptConn) writeOnce(fd uintptr) bool {
	for c.written < len(c.out) {
		n, err := syscall.Write(int(fd), c.out[c.written:])
		switch {
		case err == syscall.EINTR:
			continue
		case err == syscall.EAGAIN:
		case err != nil:
			c.failed = opError("write", c.Conn, os.NewSyscallError("write", err))
		default:
			c.written += n
		}
		return true // where that was not all, another call would only say EAGAIN
	}
	return true
}
