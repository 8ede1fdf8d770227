// SPDX-License-Identifier: Apache-2.0

//go:build lab

package lab_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
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
func behind(t *testing.T, nat lab.Translation) (g *lab.Grid, router *lab.NAT) {
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
			if heard, _ := knock(t, hub, at, conn, g.A); !heard {
				t.Fatal("the mapping is not there")
			}
			if err := g.A.Forget(); err != nil {
				t.Fatal(err)
			}
			if heard, _ := knock(t, hub, at, conn, g.A); heard {
				t.Error("the mapping outlives the router's restart")
			}
			again := open()
			if heard, _ := knock(t, hub, again, conn, g.A); !heard {
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
	g := against(t, "port-restricted")
	if err := g.A.ForgetAfter(time.Second); err != nil {
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
	if heard, _ := knock(t, hub, at, conn, g.A); heard {
		t.Error("the mapping outlives its time")
	}

	// Mappings that are kept in maps have a lifetime too.
	g2, _ := behind(t, lab.Translation{Mapping: lab.Independent, Filtering: lab.Independent, Lifetime: time.Second})
	if err := g2.A.ForgetAfter(time.Second); err != nil {
		t.Fatal(err)
	}
	conn = udp(t, g2.A.Host, "udp4", ":51820")
	stranger := udp(t, g2.Other, "udp4", lab.OtherAddr+":9999")
	at = mapped(t, conn, g2.STUN4[0])
	if heard, _ := knock(t, stranger, at, conn, g2.A); !heard {
		t.Fatal("the full cone is not open")
	}
	// A stranger's packets do not keep it alive (RFC 4787, REQ-6): every knock is
	// from another port, or it would only ask the kernel for its connection.
	began = time.Now()
	for port := 10000; ; port++ {
		stranger := udp(t, g2.Other, "udp4", fmt.Sprintf("%s:%d", lab.OtherAddr, port))
		heard, _ := knock(t, stranger, at, conn, g2.A)
		stranger.Close()
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
	n, err := h.UDPConnections()
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
			if heard, _ := knock(t, hub, old, conn, g.A); !heard {
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
			if heard, _ := knock(t, hub, at, conn, g.A); !heard {
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

// TestCarrierTranslatesTwice: the provider sees the home router's address and the
// node's port, the internet sees the provider's address and a port of its range.
func TestCarrierTranslatesTwice(t *testing.T) {
	g := against(t, "cgnat")
	within := netip.MustParseAddrPort("100.64.0.1:3478")
	if err := g.A.Carrier.Reflect(within); err != nil {
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
		{"counted", g.Internet.LoseEvery("a", oneIn), sent / oneIn, sent/oneIn + noise/oneIn + 1},
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
