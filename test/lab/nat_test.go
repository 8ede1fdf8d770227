// SPDX-License-Identifier: Apache-2.0

//go:build lab

package lab_test

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/test/lab"
	"github.com/tombolo-io/tombolo/test/lab/labtest"
)

// hear waits for the word on the socket and returns from where it came.
func hearWord(conn *net.UDPConn, word string, within time.Duration) (netip.AddrPort, error) {
	packet := make([]byte, 4000)
	conn.SetReadDeadline(time.Now().Add(within))
	for {
		n, from, err := conn.ReadFromUDPAddrPort(packet)
		if err != nil || string(packet[:n]) == word {
			return from, err
		}
	}
}

func say(t *testing.T, conn *net.UDPConn, word string, to netip.AddrPort) {
	t.Helper()
	if _, err := conn.WriteToUDPAddrPort([]byte(word), to); err != nil {
		t.Fatal(err)
	}
}

// behind is a router with the NAT and two hosts on its LAN, and two servers.
func behind(t *testing.T, nat lab.Translation) (g *lab.Grid, router *lab.Filter) {
	t.Helper()
	k := kind(t, "port-restricted")
	g = gridOf(t, lab.Pair{A: k, B: k, Near: lab.SameLAN})
	if err := g.A.NAT.Off(); err != nil {
		t.Fatal(err)
	}
	router, err := g.A.Router.Translate("wan", nat)
	if err != nil {
		t.Fatal(err)
	}
	if err := router.On(); err != nil {
		t.Fatal(err)
	}
	return g, router
}

func cone(filtering lab.Behaviour) lab.Translation {
	return lab.Translation{Mapping: lab.Independent, Filtering: filtering}
}

// TestTwoHostsWithOnePort is KubeSpan's issue 12897 in miniature: of two hosts
// that use one source port, the NAT moves the second to another, the same for
// every destination. Who assumes the port that it bound is wrong.
func TestTwoHostsWithOnePort(t *testing.T) {
	for name, nat := range map[string]lab.Translation{
		"masquerade":     cone(lab.AddressPortDependent),
		"full cone":      cone(lab.Independent),
		"address":        cone(lab.AddressDependent),
		"hairpin":        {Mapping: lab.Independent, Filtering: lab.AddressPortDependent, Hairpin: true},
		"range of ports": {Mapping: lab.Independent, Filtering: lab.AddressPortDependent, FirstPort: 20000, LastPort: 29999},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, _ := behind(t, nat)
			var at [2]netip.AddrPort
			var conns [2]*net.UDPConn
			for i, p := range g.All {
				conns[i] = udp(t, p.Host, "udp4", ":51820")
				at[i] = mapped(t, conns[i], g.STUN4[0])
				if got := mapping(t, conns[i], g.STUN4); got != lab.Independent {
					t.Errorf("host %d: %s mapping", i, got)
				}
			}
			if at[0].Addr() != g.A.Public4 || at[1].Addr() != g.A.Public4 || at[0].Port() == at[1].Port() {
				t.Errorf("seen as %s and %s, want two ports of %s", at[0], at[1], g.A.Public4)
			}
			if kept := at[0].Port() == 51820; kept != (nat.FirstPort == 0) {
				t.Errorf("the first is seen as %s", at[0])
			}
			if nat.FirstPort != 0 {
				for _, a := range at {
					if a.Port() < nat.FirstPort || a.Port() > nat.LastPort {
						t.Errorf("seen as %s, want a port from %d to %d", a, nat.FirstPort, nat.LastPort)
					}
				}
			}
			// What comes to either port comes to its host.
			hub := udp(t, g.Hub, "udp4", lab.HubAddr+":9999")
			for i, conn := range conns {
				say(t, conn, "open", netip.MustParseAddrPort(lab.HubAddr+":9999"))
				say(t, hub, fmt.Sprint("to host ", i), at[i])
				if _, err := hearWord(conn, fmt.Sprint("to host ", i), patience); err != nil {
					t.Errorf("host %d: %v", i, err)
				}
			}
		})
	}
}

// TestAddressDependentMapping: one port for each address, whichever port there.
func TestAddressDependentMapping(t *testing.T) {
	g, _ := behind(t, lab.Translation{Mapping: lab.AddressDependent, Filtering: lab.AddressPortDependent})
	conn := udp(t, g.A.Host, "udp4", ":51820")
	if got := mapping(t, conn, g.STUN4); got != lab.AddressDependent {
		t.Errorf("%s mapping", got)
	}
	if got := filtering(t, g, g.A, "udp4", g.STUN4); got != lab.AddressPortDependent {
		t.Errorf("%s filtering", got)
	}
}

// TestHairpin: two hosts behind one NAT reach each other by their outer endpoints
// where it turns packets round, and see each other's outer endpoint; else not.
func TestHairpin(t *testing.T) {
	for _, on := range []bool{true, false} {
		t.Run(fmt.Sprint(on), func(t *testing.T) {
			t.Parallel()
			g, _ := behind(t, lab.Translation{Mapping: lab.Independent, Filtering: lab.AddressDependent, Hairpin: on})
			a, b := udp(t, g.A.Host, "udp4", ":51820"), udp(t, g.B.Host, "udp4", ":51820")
			atA, atB := mapped(t, a, g.STUN4[0]), mapped(t, b, g.STUN4[0])
			say(t, a, "hello", atB)
			from, err := hearWord(b, "hello", map[bool]time.Duration{true: patience, false: soon}[on])
			if on != (err == nil) || on && from != atA {
				t.Fatalf("b hears it from %s (%v), want from %s: %v", from, err, atA, on)
			}
			if !on {
				return
			}
			say(t, b, "welcome", from)
			if from, err := hearWord(a, "welcome", patience); err != nil || from != atB {
				t.Errorf("a hears the answer from %s (%v), want %s", from, err, atB)
			}
		})
	}
}

// TestCarrierTranslatesTwice: the provider sees the home router's address and the
// node's port, the internet sees the provider's address and a port of its range.
func TestCarrierTranslatesTwice(t *testing.T) {
	g := against(t, "cgnat")
	within := netip.MustParseAddrPort("100.64.0.1:3478")
	if err := lab.Reflect(g.A.Carrier, within); err != nil {
		t.Fatal(err)
	}
	conn := udp(t, g.A.Host, "udp4", ":51820")
	if at := mapped(t, conn, within); at != netip.MustParseAddrPort("100.64.0.2:51820") {
		t.Errorf("the provider sees %s", at)
	}
	at := mapped(t, conn, g.STUN4[0])
	if at.Addr() != g.A.Public4 || at.Port() < 20000 || at.Port() > 29999 {
		t.Errorf("the internet sees %s, want %s and a port from 20000 to 29999", at, g.A.Public4)
	}
	if n := connections(t, g.A.Carrier); n == 0 {
		t.Error("the provider's NAT knows no connection")
	}
}

// TestLossRate: the counted loss is exact, the random one about what it says.
func TestLossRate(t *testing.T) {
	g := against(t, "open")
	to := udp(t, g.Hub, "udp4", lab.HubAddr+":9999")
	from := udp(t, g.A.Host, "udp4", ":51820")
	const batch, batches, oneIn = 50, 40, 10 // a batch fits into the receiver's buffer
	const sent = batch * batches
	const noise = 5 // what the kernels say to each other of IPv6 counts too
	for _, c := range []struct {
		name        string
		filter      *lab.Filter
		least, most uint64
	}{
		{"counted", lab.LoseEvery(g.Internet, "a", oneIn), sent / oneIn, sent/oneIn + noise/oneIn + 1},
		// Six standard deviations: once in 500 million runs.
		{"random", g.A.LossOut, sent/oneIn - 81, sent/oneIn + 81},
	} {
		if err := c.filter.On(); err != nil {
			t.Fatal(err)
		}
		var heard, lost uint64
		packet := make([]byte, 100)
		for range batches {
			for range batch {
				say(t, from, "x", netip.MustParseAddrPort(lab.HubAddr+":9999"))
			}
			// A packet on a veth link has arrived or is counted when it is sent.
			before := lost
			lost = packets(t, c.filter)
			for range batch - (lost - before) {
				to.SetReadDeadline(time.Now().Add(patience))
				if _, err := to.Read(packet); err != nil {
					t.Fatalf("%s: %d arrived and %d were lost: %v", c.name, heard, lost, err)
				}
				heard++
			}
		}
		if err := c.filter.Off(); err != nil {
			t.Fatal(err)
		}
		if lost < c.least || lost > c.most {
			t.Errorf("%s: %d of %d packets were lost, want from %d to %d", c.name, lost, sent, c.least, c.most)
		}
		if heard+lost < sent || heard+lost > sent+noise {
			t.Errorf("%s: %d were lost and %d arrived of %d", c.name, lost, heard, sent)
		}
	}
}

// TestUnbuiltNATsAreRefused: a kind that the rules cannot make is an error, not
// another kind.
func TestUnbuiltNATsAreRefused(t *testing.T) {
	h, err := labtest.New(t, "refuse").Router("r")
	if err != nil {
		t.Fatal(err)
	}
	for _, nat := range []lab.Translation{
		{},
		{Mapping: lab.AddressPortDependent, Filtering: lab.Independent},
		{Mapping: lab.AddressPortDependent, Filtering: lab.AddressPortDependent, Hairpin: true},
		{Mapping: lab.AddressPortDependent, Filtering: lab.AddressPortDependent, FirstPort: 1, LastPort: 2},
		{Mapping: lab.Independent, Filtering: lab.AddressPortDependent, FirstPort: 2, LastPort: 1},
		{Mapping: lab.Independent, Filtering: lab.AddressPortDependent, LastPort: 1},
	} {
		if _, err := h.Translate("wan", nat); err == nil {
			t.Errorf("%+v was taken", nat)
		}
	}
}
