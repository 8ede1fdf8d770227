// SPDX-License-Identifier: Apache-2.0

package runtest

import (
	"io"
	"net"
	"net/netip"
	"testing"
)

// TestAddresses: they are loopback, and neither tests of one process nor processes
// that run side by side get the same.
func TestAddresses(t *testing.T) {
	seen := map[string]bool{}
	for pid := 1_000_000; pid < 1_001_000; pid++ {
		for _, n := range []int{1, 2, 249, 250, 251, 1_999} {
			a := address(pid, n, 8443)
			if ap, err := netip.ParseAddrPort(a); err != nil || !ap.Addr().IsLoopback() || ap.Port() != 8443 {
				t.Fatalf("process %d, address %d: %q, %v", pid, n, a, err)
			}
			if seen[a] {
				t.Fatalf("process %d, address %d: %s is another one's", pid, n, a)
			}
			seen[a] = true
		}
	}
	if first := Address(1); first == Address(1) {
		t.Errorf("%s is given twice", first)
	}
}

// TestATargetEndsWithItsConnections: also with one that nobody serves any more.
func TestATargetEndsWithItsConnections(t *testing.T) {
	echo, silent := Echo(t), Serve(t, func(*net.TCPConn) {})
	for _, s := range []*Target{echo, silent} {
		c, err := net.Dial("tcp", s.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if s == echo {
			io.WriteString(c, "x")
			if b, err := io.ReadAll(io.LimitReader(c, 1)); string(b) != "x" || err != nil {
				t.Errorf("%q, %v", b, err)
			}
		}
		Eventually(t, "it is accepted", func() bool { return s.Accepted() == 1 })
		s.Stop()
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Error("the connection outlives its target")
		}
	}
}
