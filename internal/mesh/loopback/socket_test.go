// SPDX-License-Identifier: Apache-2.0

package loopback_test

import (
	"context"
	"net"
	"net/netip"
	"testing"

	"go.uber.org/goleak"

	"github.com/tombolo-io/tombolo/internal/mesh/loopback"
)

// TestTheLoopbackLink: the kernel's port is heard at each place and nobody else is, and it hears from each place.
func TestTheLoopbackLink(t *testing.T) {
	defer goleak.VerifyNone(t)
	open := func() *net.UDPConn {
		t.Helper()
		c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	kernel, other := open(), open()
	defer kernel.Close()
	defer other.Close()
	s, err := loopback.Open(t.Context(), kernel.LocalAddr().(*net.UDPAddr).AddrPort().Port())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, cancel := context.WithCancel(t.Context())
	heard, done := make(chan string, 10), make(chan error, 1)
	go func() {
		done <- s.Run(ctx, func(to netip.Addr, b []byte) { heard <- to.String() + " " + string(b) })
	}()
	for _, at := range []string{"127.84.0.1", "127.84.200.3"} {
		to := netip.AddrPortFrom(netip.MustParseAddr(at), s.Port())
		for from, text := range map[*net.UDPConn]string{kernel: "yes", other: "no"} {
			if _, err := from.WriteToUDPAddrPort([]byte(text), to); err != nil {
				t.Fatal(err)
			}
		}
		if got := <-heard; got != at+" yes" {
			t.Errorf("%q was heard", got)
		}
		if err := s.Send(to.Addr(), []byte("back")); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 10)
		if n, from, err := kernel.ReadFromUDPAddrPort(b); err != nil || from != to || string(b[:n]) != "back" {
			t.Errorf("the kernel has %q of %v: %v", b[:n], from, err)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	select {
	case more := <-heard:
		t.Errorf("%q was heard", more)
	default:
	}
}
