// SPDX-License-Identifier: Apache-2.0

//go:build lab

package lab_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/test/lab"
)

// TestMappingIsLost: by a restart of the router, and by time without packets.
func TestMappingIsLost(t *testing.T) {
	for _, name := range []string{"port-restricted", "symmetric", "full-cone", "restricted", "cgnat", "ipv6-only"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := against(t, name)
			network, address := "udp4", lab.HubAddr
			if !g.A.Kind.IPv4 {
				network, address = "udp6", "["+lab.HubAddr6+"]"
			}
			conn := udp(t, g.A.Host, network, ":51820")
			hub := udp(t, g.Hub, network, address+":9999")
			to := netip.MustParseAddrPort(address + ":9999")
			open := func() netip.AddrPort {
				say(t, conn, "open", to)
				at, err := hearWord(hub, "open", patience)
				if err != nil {
					t.Fatal(err)
				}
				return at
			}
			at := open()
			if heard, _ := sendUntilHeard(t, hub, at, conn, g.A); !heard {
				t.Fatal("the mapping is not there")
			}
			if err := g.A.Forget(); err != nil {
				t.Fatal(err)
			}
			if heard, _ := sendUntilHeard(t, hub, at, conn, g.A); heard {
				t.Error("the mapping outlives the router's restart")
			}
			again := open()
			if heard, _ := sendUntilHeard(t, hub, again, conn, g.A); !heard {
				t.Error("there is no mapping after the restart")
			}
			if g.A.Kind.V4.Mapping == lab.AddressPortDependent && at == again {
				t.Errorf("the symmetric NAT gave %s twice", at)
			}
		})
	}
}

// TestMappingDiesOfSilence: the router forgets what nobody uses.
func TestMappingDiesOfSilence(t *testing.T) {
	const silence = 3 * time.Second // the mapping is looked at before it ends
	g := against(t, "port-restricted")
	if err := g.A.ForgetAfter(silence); err != nil {
		t.Fatal(err)
	}
	conn := udp(t, g.A.Host, "udp4", ":51820")
	hub := udp(t, g.Hub, "udp4", lab.HubAddr+":9999")
	say(t, conn, "open", netip.MustParseAddrPort(lab.HubAddr+":9999"))
	at, err := hearWord(hub, "open", patience)
	if err != nil {
		t.Fatal(err)
	}
	if n := connections(t, g.A.Router); n != 1 {
		t.Fatalf("the router knows %d connections, want 1", n)
	}
	began := time.Now()
	for connections(t, g.A.Router) > 0 {
		if time.Since(began) > patience {
			t.Fatal("the router does not forget")
		}
		time.Sleep(20 * time.Millisecond)
	}
	if heard, _ := sendUntilHeard(t, hub, at, conn, g.A); heard {
		t.Error("the mapping outlives its time")
	}

	// Mappings that are kept in maps have a lifetime too.
	g2, _ := behind(t, lab.Translation{Mapping: lab.Independent, Filtering: lab.Independent, Lifetime: silence})
	if err := g2.A.ForgetAfter(silence); err != nil {
		t.Fatal(err)
	}
	conn = udp(t, g2.A.Host, "udp4", ":51820")
	outsider := udp(t, g2.Other, "udp4", lab.OtherAddr+":9999")
	at = mapped(t, conn, g2.STUN4[0])
	if heard, _ := sendUntilHeard(t, outsider, at, conn, g2.A); !heard {
		t.Fatal("the full cone is not open")
	}
	// Packets of a third host do not keep it alive (RFC 4787, REQ-6): every probe is
	// from another port, or it would only ask the kernel for its connection.
	began = time.Now()
	for port := 10000; ; port++ {
		outsider := udp(t, g2.Other, "udp4", fmt.Sprintf("%s:%d", lab.OtherAddr, port))
		heard, _ := sendUntilHeard(t, outsider, at, conn, g2.A)
		outsider.Close()
		if !heard {
			break
		}
		if time.Since(began) > patience {
			t.Fatal("the full cone is open for ever")
		}
	}
}

func connections(t *testing.T, h *lab.Host) int {
	t.Helper()
	n, err := lab.UDPConnections(h)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestAddressChange: the provider gives another address; the old mapping is dead,
// the next packet makes one with the new address.
func TestAddressChange(t *testing.T) {
	for _, name := range []string{"port-restricted", "full-cone", "symmetric", "cgnat"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := against(t, name)
			conn, hub := udp(t, g.A.Host, "udp4", ":51820"), udp(t, g.Hub, "udp4", lab.HubAddr+":7777")
			seen := func() netip.AddrPort {
				say(t, conn, "open", netip.MustParseAddrPort(lab.HubAddr+":7777"))
				at, err := hearWord(hub, "open", patience)
				if err != nil {
					t.Fatal(err)
				}
				return at
			}
			old := seen()
			if heard, _ := sendUntilHeard(t, hub, old, conn, g.A); !heard {
				t.Fatal("the mapping is not there")
			}
			fresh, err := g.A.Renumber()
			if err != nil {
				t.Fatal(err)
			}
			if n, err := hub.WriteToUDPAddrPort([]byte("old"), old); err == nil && n > 0 {
				if _, err := hearWord(conn, "old", soon); !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("the old address still leads here: %v", err)
				}
			}
			at := seen()
			if old.Addr() == fresh || at.Addr() != fresh || g.A.Public4 != fresh {
				t.Errorf("seen as %s, then as %s, want the new address %s", old, at, fresh)
			}
			if heard, _ := sendUntilHeard(t, hub, at, conn, g.A); !heard {
				t.Error("there is no mapping at the new address")
			}
			if want := g.A.Kind.V4; mapping(t, conn, g.STUN4) != want.Mapping || filtering(t, g, g.A, "udp4", g.STUN4) != want.Filtering {
				t.Error("the NAT behaves in another way at its new address")
			}
		})
	}
	g := against(t, "open")
	if _, err := g.A.Renumber(); err == nil {
		t.Error("a place without NAT was renumbered")
	}
}

// TestSwitchedDuringATest: each obstacle comes and goes while a socket is in use.
func TestSwitchedDuringATest(t *testing.T) {
	g := gridOf(t, lab.Pair{A: kind(t, "dual-stack"), B: kind(t, "dual-stack")})
	a, b := udp(t, g.A.Host, "udp4", ":51820"), udp(t, g.B.Host, "udp4", ":51820")
	atA, atB := mapped(t, a, g.STUN4[0]), mapped(t, b, g.STUN4[0])
	say(t, a, "open", atB)
	say(t, b, "open", atA)
	passes := func(from *net.UDPConn, to netip.AddrPort, at *net.UDPConn, wanted bool) bool {
		word := fmt.Sprint("word ", time.Now().UnixNano())
		within := patience
		if !wanted {
			within = soon
		}
		say(t, from, word, to)
		_, err := hearWord(at, word, within)
		return err == nil
	}
	hub := udp(t, g.Hub, "udp4", lab.HubAddr+":9999")
	say(t, a, "open", netip.MustParseAddrPort(lab.HubAddr+":9999"))
	hub6, to6 := udp(t, g.Hub, "udp6", "["+lab.HubAddr6+"]:9999"), netip.MustParseAddrPort("["+lab.HubAddr6+"]:9999")
	a6 := udp(t, g.A.Host, "udp6", ":51820")
	type ways struct{ aToB, bToA, toHub, toHub6 bool }
	all := ways{true, true, true, true}
	for _, c := range []struct {
		name   string
		filter *lab.Filter
		want   ways
	}{
		{"UDP blocked at A", g.A.UDPBlock, ways{false, false, false, false}},
		{"nothing forwarded at A", g.A.AllBlock, ways{false, false, false, false}},
		{"A's uplink", g.A.Uplink, ways{false, false, false, false}},
		{"A's uplink inwards", g.A.UplinkIn, ways{true, false, true, true}},
		{"A's uplink outwards", g.A.UplinkOut, ways{false, true, false, false}},
		{"IPv4 at A", g.A.IPv4Block, ways{false, false, false, true}},
		{"IPv6 at A", g.A.IPv6Block, ways{true, true, true, false}},
		{"the way between them", g.Between, ways{false, false, true, true}},
		{"the way from A to B", g.AToB, ways{false, true, true, true}},
		{"the way from B to A", g.BToA, ways{true, false, true, true}},
	} {
		for _, on := range []bool{true, false} {
			want, toggle := all, c.filter.Off
			if on {
				want, toggle = c.want, c.filter.On
			}
			before := packets(t, c.filter)
			if err := toggle(); err != nil {
				t.Fatal(err)
			}
			toHub := netip.MustParseAddrPort(lab.HubAddr + ":9999")
			got := ways{passes(a, atB, b, want.aToB), passes(b, atA, a, want.bToA), passes(a, toHub, hub, want.toHub), passes(a6, to6, hub6, want.toHub6)}
			if got != want {
				t.Errorf("%s, on %v: %+v, want %+v", c.name, on, got, want)
			}
			if counted := packets(t, c.filter) > before; counted != on {
				t.Errorf("%s, on %v: it counted packets: %v", c.name, on, counted)
			}
		}
	}
}
