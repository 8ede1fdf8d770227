// SPDX-License-Identifier: Apache-2.0

//go:build lab

package lab_test

import (
	"io"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/test/lab"
)

// TestBlackHole: small packets pass, big ones vanish without a word, both ways,
// and TCP goes on; lifted, big ones pass.
func TestBlackHole(t *testing.T) {
	for _, name := range []string{"port-restricted", "ipv6-only"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := against(t, name)
			headers, network, address := 28, "udp4", lab.HubAddr
			if !g.A.Kind.IPv4 {
				headers, network, address = 48, "udp6", "["+lab.HubAddr6+"]"
			}
			const mtu = 1360
			if err := g.A.BlackHole(mtu); err != nil {
				t.Fatal(err)
			}
			conn, hub := udp(t, g.A.Host, network, ":51820"), udp(t, g.Hub, network, address+":9999")
			to := netip.MustParseAddrPort(address + ":9999")
			say(t, conn, "open", to)
			at, err := hearWord(hub, "open", patience)
			if err != nil {
				t.Fatal(err)
			}
			passes := func(size int) (out, in bool) {
				word := string(slices.Repeat([]byte("x"), size-headers))
				say(t, conn, word, to)
				_, errOut := hearWord(hub, word, soon)
				say(t, hub, word, at)
				_, errIn := hearWord(conn, word, soon)
				return errOut == nil, errIn == nil
			}
			if out, in := passes(mtu); !out || !in {
				t.Errorf("%d bytes pass out %v, in %v; want both", mtu, out, in)
			}
			for range 2 { // nobody learns from the first
				before := swallowed(t, g.A)
				if out, in := passes(mtu + 1); out || in {
					t.Errorf("%d bytes pass out %v, in %v; want neither", mtu+1, out, in)
				}
				if n := swallowed(t, g.A) - before; n != 2 {
					t.Errorf("%d words on big packets were kept back, want one each way", n)
				}
			}
			bulk(t, g, address)
			if err := g.A.BlackHole(0); err != nil {
				t.Fatal(err)
			}
			if out, in := passes(1500); !out || !in {
				t.Errorf("lifted, 1500 bytes pass out %v, in %v", out, in)
			}
		})
	}
}

func swallowed(t *testing.T, p *lab.Place) uint64 {
	t.Helper()
	n, err := p.SwallowedTooBig()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// bulk sends more than fits into a packet to the hub and back, by TCP.
func bulk(t *testing.T, g *lab.Grid, address string) {
	t.Helper()
	greeter(t, g.Hub, address+":443", "hub")
	conn, err := g.A.Host.DialContext(t.Context(), "tcp", address+":443")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	const size = 1 << 18
	go func() {
		conn.Write(make([]byte, size))
		conn.(*net.TCPConn).CloseWrite()
	}()
	if n, err := io.Copy(io.Discard, conn); err != nil || n < size {
		t.Errorf("of %d bytes %d came back over the black hole: %v", size, n, err)
	}
}
