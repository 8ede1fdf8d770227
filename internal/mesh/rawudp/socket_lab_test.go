// SPDX-License-Identifier: Apache-2.0

//go:build lab

package rawudp_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"testing"

	"go.uber.org/goleak"

	"github.com/tombolo-io/tombolo/internal/mesh/rawudp"
	"github.com/tombolo-io/tombolo/internal/mesh/tunnel"
)

const probe, stun = "\xf5TB\x01 a probe", "\x01\x01\x00\x00\x21\x12\xa4\x42 and an id of it"

// TestAPortIsShared: probes and STUN to another socket's port are heard, that socket's own packets are not, and what is
// sent comes from that port with a checksum that the kernel finds right.
func TestAPortIsShared(t *testing.T) {
	defer goleak.VerifyNone(t)
	for network, host := range map[string]string{"udp4": "127.0.0.1", "udp6": "::1"} {
		t.Run(network, func(t *testing.T) {
			here := netip.MustParseAddr(host)
			owner, other := listen(t, network, here), listen(t, network, here)
			defer owner.Close()
			defer other.Close()
			port, at := ends(owner), ends(other)
			s, err := rawudp.Open(t.Context(), rawudp.Settings{Port: port.Port(), Mark: 0x20})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if f := rawudp.Able(); f != nil || !s.Has(here) || s.Port() != port.Port() {
				t.Errorf("it is able (%v), and has %v and %d", f, s.Has(here), s.Port())
			}
			ctx, cancel := context.WithCancel(t.Context())
			heard, done := make(chan string, 10), make(chan error, 1)
			note := func(kind string) tunnel.Handler {
				return func(from netip.AddrPort, local netip.Addr, b []byte) {
					heard <- fmt.Sprint(kind, from, local, string(b))
				}
			}
			go func() { done <- s.Run(ctx, tunnel.Handlers{Probe: note("probe"), STUN: note("stun")}) }()
			for _, text := range []string{"\x04\x00\x00\x00 of WireGuard", probe, "anything", stun} {
				if _, err := other.WriteToUDPAddrPort([]byte(text), port); err != nil {
					t.Fatal(err)
				}
			}
			for _, want := range []string{fmt.Sprint("probe", at, here, probe), fmt.Sprint("stun", at, here, stun)} {
				if got := <-heard; got != want {
					t.Errorf("%q was heard, want %q", got, want)
				}
			}
			gone := netip.MustParseAddr(map[string]string{"udp4": "192.0.2.77", "udp6": "2001:db8::77"}[network])
			for _, local := range []netip.Addr{here, {}, gone} {
				for _, send := range []func(netip.AddrPort, netip.Addr, []byte) error{s.Send, s.SendWhole} {
					if err := send(at, local, []byte(probe)); err != nil {
						t.Fatalf("from %v: %v", local, err)
					}
					b := make([]byte, 100)
					if n, from, err := other.ReadFromUDPAddrPort(b); err != nil || from != port || string(b[:n]) != probe {
						t.Errorf("from %v: %q of %v came: %v", local, b[:n], from, err)
					}
				}
			}
			cancel()
			if err := <-done; err != nil || len(heard) > 0 {
				t.Errorf("%d more were heard; %v", len(heard), err)
			}
		})
	}
}

func listen(t *testing.T, network string, at netip.Addr) *net.UDPConn {
	t.Helper()
	c, err := net.ListenUDP(network, net.UDPAddrFromAddrPort(netip.AddrPortFrom(at, 0)))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func ends(c *net.UDPConn) netip.AddrPort { return c.LocalAddr().(*net.UDPAddr).AddrPort() }
