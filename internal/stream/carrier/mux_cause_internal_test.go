// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

func TestCauseOf(t *testing.T) {
	read := func(err error) error {
		return &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", err)}
	}
	for _, c := range []struct {
		why   error
		clean bool
		want  Cause
	}{
		{io.EOF, true, CauseLeft},
		{read(syscall.ETIMEDOUT), true, CauseLeft},
		{io.EOF, false, CauseBroken},
		{io.ErrUnexpectedEOF, false, CauseBroken},
		{net.ErrClosed, false, CauseBroken},
		{read(syscall.ECONNRESET), false, CauseBroken},
		{read(syscall.ETIMEDOUT), false, CauseSilent}, // TCP_USER_TIMEOUT
		{read(os.ErrDeadlineExceeded), false, CauseSilent},
		{fault.New(fault.CodeSessionLost, "the connection is silent"), false, CauseSilent},
		{fmt.Errorf("lost: %w", fault.New(fault.CodeSessionLost, "the connection is silent")), false, CauseSilent},
		{nil, false, CauseBroken},
	} {
		if got := causeOf(c.why, c.clean); got != c.want {
			t.Errorf("%v, clean %v: %s instead of %s", c.why, c.clean, got, c.want)
		}
	}
}
