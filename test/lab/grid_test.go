// SPDX-License-Identifier: Apache-2.0

//go:build lab

package lab_test

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tombolo-io/tombolo/test/lab"
	"github.com/tombolo-io/tombolo/test/lab/labtest"
)

// patience bounds what must happen; nobody waits so long unless it does not.
const patience = 10 * time.Second

// soon is how long something is waited for that must not happen, beside a proof
// that it was dropped.
const soon = 100 * time.Millisecond

func kind(t testing.TB, name string) lab.Kind {
	t.Helper()
	k, ok := lab.KindOf(name)
	if !ok {
		t.Fatalf("there is no kind %q", name)
	}
	return k
}

// gridOf builds the world of two kinds.
func gridOf(t testing.TB, pair lab.Pair) *lab.Grid {
	t.Helper()
	g, err := lab.NewGrid(labtest.New(t, "grid"), pair)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// against builds a world with the kind at A and an open place at B.
func against(t testing.TB, name string) *lab.Grid {
	t.Helper()
	return gridOf(t, lab.Pair{A: kind(t, name), B: kind(t, "open")})
}

func udp(t testing.TB, h *lab.Host, network, address string) *net.UDPConn {
	t.Helper()
	conn, err := h.ListenUDP(network, address)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

func mapped(t testing.TB, conn *net.UDPConn, server netip.AddrPort) netip.AddrPort {
	t.Helper()
	at, err := lab.STUNAsk(conn, server, patience)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// mapping classifies the mapped endpoints that three servers see: two ports of
// one address, and another address.
func mapping(t testing.TB, conn *net.UDPConn, servers []netip.AddrPort) lab.Behaviour {
	t.Helper()
	one, otherPort, otherAddr := mapped(t, conn, servers[0]), mapped(t, conn, servers[1]), mapped(t, conn, servers[2])
	switch {
	case one != otherPort:
		return lab.AddressPortDependent
	case one != otherAddr:
		return lab.AddressDependent
	}
	return lab.Independent
}

// drops sums up what the place's firewalls dropped.
func drops(t testing.TB, p *lab.Place) uint64 {
	t.Helper()
	var sum uint64
	for _, f := range []*lab.Filter{p.Firewall, p.CarrierFirewall} {
		if f != nil {
			sum += packets(t, f)
		}
	}
	return sum
}

// sendUntilHeard sends a word from one socket to an endpoint until it is heard on another
// (true, and from where) or a firewall of the place has dropped it.
func sendUntilHeard(t testing.TB, from *net.UDPConn, at netip.AddrPort, hears *net.UDPConn, place *lab.Place) (bool, netip.AddrPort) {
	t.Helper()
	word := fmt.Sprintf("probe %d", time.Now().UnixNano())
	before := drops(t, place)
	packet := make([]byte, 2000)
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if _, err := from.WriteToUDPAddrPort([]byte(word), at); err != nil {
			t.Fatal(err)
		}
		hears.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		for {
			n, source, err := hears.ReadFromUDPAddrPort(packet)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if string(packet[:n]) == word {
				return true, source
			}
		}
		if drops(t, place) > before {
			return false, netip.AddrPort{}
		}
	}
	t.Fatalf("the word to %s was neither heard nor dropped", at)
	return false, netip.AddrPort{}
}

// filtering classifies whom a fresh socket hears that has written to one server.
func filtering(t testing.TB, g *lab.Grid, place *lab.Place, network string, servers []netip.AddrPort) lab.Behaviour {
	t.Helper()
	conn := udp(t, place.Host, network, ":40001")
	at := mapped(t, conn, servers[0])
	hub := udp(t, g.Hub, network, netip.AddrPortFrom(servers[0].Addr(), 9999).String())
	other := udp(t, g.Other, network, netip.AddrPortFrom(servers[2].Addr(), 9999).String())
	if heard, _ := sendUntilHeard(t, other, at, conn, place); heard {
		return lab.Independent
	}
	if heard, _ := sendUntilHeard(t, hub, at, conn, place); heard {
		return lab.AddressDependent
	}
	return lab.AddressPortDependent
}

// family is an IP version and what a kind says of it.
type family struct {
	network string
	has     bool
	want    lab.UDP
	servers []netip.AddrPort
}

// TestProxyAsksForAPassword where it has one.
func TestProxyAsksForAPassword(t *testing.T) {
	g := against(t, "proxy-only")
	greeter(t, g.Hub, lab.HubAddr+":443", "hub")
	strict, err := lab.StartProxy(g.A.Router, "192.168.1.1:3129", "user", "secret")
	if err != nil {
		t.Fatal(err)
	}
	ask := func(header string) int {
		conn, err := g.A.Host.DialContext(t.Context(), "tcp", strict.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(patience))
		fmt.Fprintf(conn, "CONNECT %[1]s:443 HTTP/1.1\r\nHost: %[1]s:443\r\n%[2]s\r\n", lab.HubAddr, header)
		answer, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: http.MethodConnect})
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode
	}
	if code := ask(""); code != http.StatusProxyAuthRequired {
		t.Errorf("without a password: %d", code)
	}
	if code := ask("Proxy-Authorization: Basic dXNlcjpzZWNyZXQ=\r\n"); code != http.StatusOK {
		t.Errorf("with the password: %d", code)
	}
}

// TestManyPlaces: more than two nodes, several on one LAN, and the way between any
// two can be cut alone.
func TestManyPlaces(t *testing.T) {
	g, err := lab.NewPlaces(labtest.New(t, "many"), kind(t, "port-restricted"), kind(t, "open"), kind(t, "dual-stack"))
	if err != nil {
		t.Fatal(err)
	}
	second, err := g.All[0].Second("a2")
	if err != nil {
		t.Fatal(err)
	}
	server := udp(t, g.All[1].Host, "udp4", netip.AddrPortFrom(g.All[1].Addr4, 7000).String())
	at := netip.AddrPortFrom(g.All[1].Public4, 7000)
	reaches := func(p *lab.Place, wanted bool) {
		t.Helper()
		conn := udp(t, p.Host, "udp4", ":0")
		defer conn.Close()
		within := patience
		if !wanted {
			within = soon
		}
		say(t, conn, "hello", at)
		from, err := hearWord(server, "hello", within)
		if (err == nil) != wanted || wanted && from.Addr() != p.Public4 {
			t.Errorf("%s reaches the open place from %s: %v; want %v from %s", p.Host.Name(), from, err, wanted, p.Public4)
		}
	}
	nodes := []*lab.Place{g.All[0], second, g.All[2]}
	for _, p := range nodes {
		reaches(p, true)
	}
	cut := g.Cut(g.All[0], g.All[1])
	if err := cut.On(); err != nil {
		t.Fatal(err)
	}
	for i, p := range nodes {
		reaches(p, i == 2)
	}
	if g.Cut(g.All[0], second) != nil {
		t.Error("a LAN can be cut at its router")
	}
	if _, err := lab.NewPlaces(labtest.New(t, "few")); err == nil {
		t.Error("a world without a place was built")
	}
}

// TestMoving: a node is carried to another network while its socket is in use.
func TestMoving(t *testing.T) {
	g := gridOf(t, lab.Pair{A: kind(t, "port-restricted"), B: kind(t, "dual-symmetric")})
	conn := udp(t, g.A.Host, "udp4", ":51820")
	before := mapped(t, conn, g.STUN4[0])
	moved, err := g.A.MoveTo(g.B)
	if err != nil {
		t.Fatal(err)
	}
	// The LAN that the node has left stands empty, and nobody waits for it.
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		var lan *net.Interface
		err := g.A.Router.Do(func() (err error) { lan, err = net.InterfaceByName("lan"); return err })
		if err != nil || time.Now().After(end) {
			t.Fatalf("the LAN that was left still runs (%v)", err)
		}
		if lan.Flags&net.FlagRunning == 0 {
			break
		}
	}
	if _, err := moved.Second("late"); err != nil {
		t.Error(err)
	}
	after := mapped(t, conn, g.STUN4[0])
	if before.Addr() != g.A.Public4 || after.Addr() != g.B.Public4 || moved.Public4 != g.B.Public4 {
		t.Errorf("seen as %s, then as %s; want %s, then %s", before, after, g.A.Public4, g.B.Public4)
	}
	if got := mapping(t, conn, g.STUN4); got != lab.AddressPortDependent {
		t.Errorf("%s mapping at the new place", got)
	}
	mapped(t, udp(t, moved.Host, "udp6", ":51820"), g.STUN6[0]) // which it did not have before
	if !moved.Addr6.IsValid() || moved.Host != g.A.Host || moved.Addr4 == g.B.Addr4 {
		t.Errorf("the node is %s at %s and %s", moved.Host.Name(), moved.Addr4, moved.Addr6)
	}
}

// TestCapture: a listener on the wire sees what is said in clear, in both
// directions, and nothing of another link.
func TestCapture(t *testing.T) {
	g := gridOf(t, lab.Pair{A: kind(t, "port-restricted"), B: kind(t, "open")})
	onA, err := g.A.Router.Capture("wan")
	if err != nil {
		t.Fatal(err)
	}
	onB, err := g.B.Router.Capture("wan")
	if err != nil {
		t.Fatal(err)
	}
	conn, hub := udp(t, g.A.Host, "udp4", ":51820"), udp(t, g.Hub, "udp4", lab.HubAddr+":9999")
	say(t, conn, "the secret question", netip.MustParseAddrPort(lab.HubAddr+":9999"))
	from, err := hearWord(hub, "the secret question", patience)
	if err != nil {
		t.Fatal(err)
	}
	say(t, hub, "the secret answer", from)
	if _, err := hearWord(conn, "the secret answer", patience); err != nil {
		t.Fatal(err)
	}
	with := func(c *lab.Capture, word string) int {
		n, err := c.With([]byte(word))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if q, a, all := with(onA, "secret question"), with(onA, "secret answer"), with(onA, "secret"); q != 1 || a != 1 || all != 2 || onA.Packets() < 2 {
		t.Errorf("on A's wire: %d questions, %d answers, %d together, of %d packets", q, a, all, onA.Packets())
	}
	if n := with(onB, "secret"); n != 0 {
		t.Errorf("on B's wire: %d", n)
	}
	if _, err := g.A.Router.Capture("eth9"); err == nil {
		t.Error("a link that does not exist is listened to")
	}
}

// TestNoGoroutineIsLeft by anything of a grid.
func TestNoGoroutineIsLeft(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	l, err := lab.New("leak")
	if err != nil {
		t.Fatal(err)
	}
	slow := kind(t, "port-mapped")
	slow.Delay = time.Millisecond
	g, err := lab.NewGrid(l, lab.Pair{A: slow, B: kind(t, "proxy-only")})
	if err != nil {
		t.Fatal(err)
	}
	relayed(t, g, g.B, true)
	if _, err := g.A.Router.Capture("wan"); err != nil {
		t.Fatal(err)
	}
	conn, err := g.B.Host.DialContext(t.Context(), "tcp", g.B.Proxy.Addr()) // left open at the proxy
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	mapped(t, udp(t, g.A.Host, "udp4", ":0"), g.STUN4[0])
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}
