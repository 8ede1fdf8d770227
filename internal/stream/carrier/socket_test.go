// SPDX-License-Identifier: Apache-2.0

package carrier_test

import (
	"errors"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/listener"
	"github.com/tombolo-io/tombolo/internal/stream/carrier"
)

// TestOnlySessionsAreBound: a caller that pauses must not be taken for one that is
// gone, and what waits in a session's kernel is little.
func TestOnlySessionsAreBound(t *testing.T) {
	ln, err := listener.Listen(t.Context(), "", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	agent, err := carrier.Dialer().DialContext(t.Context(), "tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer agent.Close()
	accepted, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	session := int(limit.DeadIdle.Milliseconds())
	if got := userTimeout(t, agent); got != session {
		t.Errorf("the agent's end: %d ms", got)
	}
	if got := userTimeout(t, accepted); got != 0 {
		t.Errorf("an accepted connection: %d ms, want no bound", got)
	}
	if got := notSent(t, agent); got != carrier.NotSent {
		t.Errorf("the agent's kernel holds %d bytes", got)
	}
	if got := leastRTO(t, agent); !near(got) {
		t.Errorf("the agent's kernel sends again after %v", got)
	}
	if err := carrier.MarkSession(accepted); err != nil || userTimeout(t, accepted) != session {
		t.Errorf("a session at the hub: %d ms, %v", userTimeout(t, accepted), err)
	}
	if got := notSent(t, accepted); got != carrier.NotSent {
		t.Errorf("the hub's kernel holds %d bytes", got)
	}
	if got := leastRTO(t, accepted); !near(got) {
		t.Errorf("the hub's kernel sends again after %v", got)
	}
}

func userTimeout(t *testing.T, c net.Conn) (ms int) {
	t.Helper()
	return option(t, c, unix.TCP_USER_TIMEOUT)
}

func notSent(t *testing.T, c net.Conn) (bytes int) {
	t.Helper()
	return option(t, c, unix.TCP_NOTSENT_LOWAT)
}

// leastRTO is what the kernel has, or what is wanted where it knows no such option (before Linux 6.15).
func leastRTO(t *testing.T, c net.Conn) time.Duration {
	t.Helper()
	us, err := getOption(t, c, unix.TCP_RTO_MIN_US)
	if errors.Is(err, unix.ENOPROTOOPT) {
		return carrier.LeastRTO
	}
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(us) * time.Microsecond
}

// near says that the kernel took LeastRTO, in its own ticks.
func near(got time.Duration) bool {
	return got >= carrier.LeastRTO && got < carrier.LeastRTO+20*time.Millisecond
}

func option(t *testing.T, c net.Conn, name int) (value int) {
	t.Helper()
	value, err := getOption(t, c, name)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

func getOption(t *testing.T, c net.Conn, name int) (value int, failed error) {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	err = raw.Control(func(fd uintptr) {
		value, failed = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, name)
	})
	return value, errors.Join(err, failed)
}
