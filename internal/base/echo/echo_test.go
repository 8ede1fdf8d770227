// SPDX-License-Identifier: Apache-2.0

package echo_test

import (
	"bytes"
	"cmp"
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/echo"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// The kernel answers each request, with its number and data; two sockets do not get the answers of each other.
func TestEcho(t *testing.T) {
	for _, to := range []string{"127.0.0.1", "::1"} {
		one, err := echo.Open(netip.MustParseAddr(to))
		if fault.Has(err, fault.CodeDialUnreachable) {
			t.Logf("%s: %v", to, err) // without the right, or without the family
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		defer one.Close()
		other, err := echo.Open(netip.MustParseAddr(to))
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		one.SetDeadline(time.Now().Add(runtest.Patience))
		for i, asks := range [][]byte{{0, 1}, {0xff, 0xff, 'x'}, append([]byte{1, 2}, bytes.Repeat([]byte{7}, 1400)...)} {
			if _, err := other.Write([]byte{9, 9, 9}); err != nil {
				t.Fatal(err)
			}
			if _, err := one.Write(asks); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, 2000)
			n, err := one.Read(got)
			if err != nil || !bytes.Equal(got[:n], asks) {
				t.Errorf("%s: %d: %d bytes, %v", to, i, n, err)
			}
		}
		if n, err := one.Write([]byte{1}); n != 1 || err != nil {
			t.Errorf("%s: of what is no request: %d, %v", to, n, err)
		}
	}
}

// Requests leave from the address that is named, and one that was asked too late fails.
func TestOptions(t *testing.T) {
	to, from := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.9")
	conn, err := echo.OpenWith(to, echo.Options{From: from, Whole: true})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if host, _, _ := net.SplitHostPort(conn.LocalAddr().String()); cmp.Or(host, conn.LocalAddr().String()) != from.String() {
		t.Errorf("from %v, want %v", conn.LocalAddr(), from)
	}
	if _, err := echo.Ask(t.Context(), to, echo.Options{From: from, Whole: true}, 60000); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := echo.Ask(ctx, netip.MustParseAddr("127.0.0.1"), echo.Options{}, 100); !fault.Has(err, fault.CodeDialTimeout) {
		t.Errorf("after its time is over: %v", err)
	}
}
