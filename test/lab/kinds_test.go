// SPDX-License-Identifier: Apache-2.0

//go:build lab

package lab_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/test/lab"
)

// TestKindsAreWhatTheySay measures what UDP does at a place of each kind, as RFC
// 5780 does it, and compares it with the table that theory goes by.
func TestKindsAreWhatTheySay(t *testing.T) {
	for _, k := range lab.Kinds() {
		t.Run(k.Name, func(t *testing.T) {
			t.Parallel()
			g := against(t, k.Name)
			measure(t, g, family{"udp4", k.IPv4, k.V4, g.STUN4})
			measure(t, g, family{"udp6", k.IPv6, k.V6, g.STUN6})
			reachesRelay(t, g, k)
			if k.Carrier || k.NAT {
				private(t, g)
			}
		})
	}
}

func measure(t *testing.T, g *lab.Grid, f family) {
	t.Helper()
	conn := udp(t, g.A.Host, f.network, fmt.Sprintf(":%d", lab.NodePort))
	if !f.has {
		if _, err := conn.WriteToUDPAddrPort([]byte("x"), f.servers[0]); err == nil {
			t.Errorf("%s: a place without it sends", f.network)
		}
		return
	}
	if f.want.Mapping == lab.Blocked {
		before := packets(t, g.A.UDPBlock) + packets(t, g.A.AllBlock)
		if at, err := lab.STUNAsk(conn, f.servers[0], soon); err == nil {
			t.Errorf("%s: blocked, and %s answered %s", f.network, f.servers[0], at)
		}
		if packets(t, g.A.UDPBlock)+packets(t, g.A.AllBlock) == before {
			t.Errorf("%s: no filter counted the packets", f.network)
		}
		return
	}
	got := lab.UDP{Mapping: mapping(t, conn, f.servers), Filtering: filtering(t, g, g.A, f.network, f.servers)}
	if got != f.want {
		t.Errorf("%s: %s mapping with %s filtering, want %s with %s", f.network, got.Mapping, got.Filtering, f.want.Mapping, f.want.Filtering)
	}
	// A port is kept where it is free, by the kinds that keep ports.
	keeps := f.want.Mapping == lab.Independent && !g.A.Kind.Carrier && !g.A.Kind.Neighbour
	if at := mapped(t, conn, f.servers[0]); (at.Port() == lab.NodePort) != keeps {
		t.Errorf("%s: seen as %s; want port %d: %v", f.network, at, lab.NodePort, keeps)
	}
}

// private: what the internet sees is the outermost NAT's address.
func private(t *testing.T, g *lab.Grid) {
	t.Helper()
	if g.A.Kind.V4.Mapping == lab.Blocked {
		return
	}
	at := mapped(t, udp(t, g.A.Host, "udp4", ":40002"), g.STUN4[0])
	if at.Addr() != g.A.Public4 || !g.A.Addr4.IsPrivate() {
		t.Errorf("%s is seen as %s, want the public address %s", g.A.Addr4, at, g.A.Public4)
	}
}

// reachesRelay: TCP gets to port 443 of the hub from everywhere, through a proxy
// where there is nothing else.
func reachesRelay(t *testing.T, g *lab.Grid, k lab.Kind) {
	t.Helper()
	for _, way := range []struct {
		has  bool
		addr string
	}{{k.IPv4, lab.HubAddr}, {k.IPv6, lab.HubAddr6}} {
		if !way.has {
			continue
		}
		relay := netip.AddrPortFrom(netip.MustParseAddr(way.addr), 443).String()
		greeter(t, g.Hub, relay, "hub")
		other := netip.AddrPortFrom(netip.MustParseAddr(way.addr), 8443).String()
		greeter(t, g.Hub, other, "hub")
		if k.ProxyOnly {
			if got, err := greeting(g.A.Host, relay, soon); err == nil {
				t.Errorf("past the proxy: %q", got)
			}
			if status := through(t, g.A, relay); status != http.StatusOK {
				t.Errorf("through the proxy to %s: %d", relay, status)
			}
			if status := through(t, g.A, other); status != http.StatusForbidden {
				t.Errorf("through the proxy to %s: %d, want it refused", other, status)
			}
			if made, refused := g.A.Proxy.Tunnels(); made != 1 || refused != 1 {
				t.Errorf("the proxy counts %d made, %d refused; want one of each", made, refused)
			}
			continue
		}
		for _, to := range []string{relay, other} {
			if _, err := greeting(g.A.Host, to, patience); err != nil {
				t.Errorf("TCP to %s: %v", to, err)
			}
		}
	}
}

// through asks the place's proxy for a connection, uses it, and returns the
// status.
func through(t *testing.T, p *lab.Place, target string) int {
	t.Helper()
	conn, err := p.Host.DialContext(t.Context(), "tcp", p.Proxy.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", target, target)
	reader := bufio.NewReader(conn)
	answer, err := http.ReadResponse(reader, &http.Request{Method: http.MethodConnect})
	if err != nil {
		t.Fatal(err)
	}
	if answer.StatusCode != http.StatusOK {
		return answer.StatusCode
	}
	if _, err := reader.ReadString('\n'); err != nil {
		t.Errorf("no greeting through the proxy: %v", err)
	}
	// Both halves are passed on: the echo ends when we do.
	fmt.Fprint(conn, "echo")
	conn.(*net.TCPConn).CloseWrite()
	if rest, err := io.ReadAll(reader); err != nil || string(rest) != "echo" {
		t.Errorf("echo through the proxy: %q, %v", rest, err)
	}
	return answer.StatusCode
}
