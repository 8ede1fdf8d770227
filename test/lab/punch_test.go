// SPDX-License-Identifier: Apache-2.0

//go:build lab

package lab_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/test/lab"
	"github.com/tombolo-io/tombolo/test/lab/labtest"
)

// TestTheoryHolds plays an honest and simple hole punch for pairs of kinds, with
// plain sockets: each node learns its endpoint by STUN, the test carries it to the
// other, both send. A direct way is found exactly where Theory says so, packets of
// the size that it says pass, and everybody reaches a relay.
func TestTheoryHolds(t *testing.T) {
	for _, pair := range labtest.Pairs() {
		t.Run(pair.String(), func(t *testing.T) {
			t.Parallel()
			want := pair.Theory()
			g := gridOf(t, pair)
			var got []int
			for _, family := range []int{4, 6} {
				if punch(t, g, family, slices.Contains(want.Families, family), want.MTU) {
					got = append(got, family)
				}
			}
			if !slices.Equal(got, want.Families) {
				t.Errorf("direct by %v, theory says %v: %s", got, want.Families, want.Why)
			}
			for i, p := range g.All {
				relayed(t, g, p, want.Proxies[i])
			}
		})
	}
}

// rounds is how often both send before it counts as no way; round is how long each
// listens in between.
const (
	rounds = 10
	round  = 10 * time.Millisecond
)

// puncher is one node's end of a hole punch.
type puncher struct {
	name       string
	place      *lab.Place
	conn       *net.UDPConn
	candidates []netip.AddrPort // of the other
	peer       netip.AddrPort   // from where the other's answer came
}

// punch says whether the nodes find each other by the family.
func punch(t *testing.T, g *lab.Grid, family int, wanted bool, mtu int) bool {
	t.Helper()
	network, servers := "udp4", g.STUN4
	has := func(p *lab.Place) (bool, lab.UDP) { return p.Kind.IPv4, p.Kind.V4 }
	if family == 6 {
		network, servers = "udp6", g.STUN6
		has = func(p *lab.Place) (bool, lab.UDP) { return p.Kind.IPv6, p.Kind.V6 }
	}
	a, b := &puncher{name: "a", place: g.A}, &puncher{name: "b", place: g.B}
	before := stopped(t, g)
	for _, one := range []struct{ self, other *puncher }{{a, b}, {b, a}} {
		exists, rule := has(one.self.place)
		if !exists {
			return false // nothing to send to or from
		}
		one.self.conn = udp(t, one.self.place.Host, network, fmt.Sprintf(":%d", lab.NodePort))
		one.other.candidates = one.self.endpoints(t, family, rule, servers[0])
	}
	began := time.Now()
	for n := 0; ; n++ {
		if a.peer.IsValid() && b.peer.IsValid() {
			break
		}
		if !wanted && n >= rounds {
			// Silence alone may be a slow machine: somebody has to own up to it.
			if g.Pair.Near == lab.Apart && stopped(t, g) == before {
				t.Errorf("IPv%d: no way, and no filter dropped anything", family)
			}
			return false
		}
		if wanted && time.Since(began) > patience {
			return false
		}
		a.send()
		b.send()
		a.listen(t, b.name)
		b.listen(t, a.name)
	}
	t.Logf("IPv%d: direct after %v, a at %s, b at %s", family, time.Since(began).Round(time.Millisecond), b.peer, a.peer)
	if g.Pair.Near == lab.SameLAN && a.peer.Addr() != g.B.Addr4 && a.peer.Addr() != g.B.Addr6 {
		t.Errorf("on one LAN the way is %s, want the other's own address", a.peer)
	}
	if wanted {
		a.fits(t, b, mtu)
		b.fits(t, a, mtu)
	}
	return true
}

// endpoints are those under which the other may reach the node.
func (p *puncher) endpoints(t *testing.T, family int, rule lab.UDP, server netip.AddrPort) []netip.AddrPort {
	t.Helper()
	own := p.place.Addr4
	if family == 6 {
		own = p.place.Addr6
	}
	list := []netip.AddrPort{netip.AddrPortFrom(own, lab.NodePort)}
	within := patience
	if rule.Mapping == lab.Blocked {
		within = soon
	}
	if at, err := lab.STUNAsk(p.conn, server, within); err == nil {
		list = append(list, at)
	} else if rule.Mapping != lab.Blocked {
		t.Fatal(err)
	}
	if p.place.Kind.PortMapping {
		list = append(list, portMapped(t, p.place, lab.NodePort, 0))
	}
	return list
}

func (p *puncher) send() {
	for _, at := range p.candidates {
		_, _ = p.conn.WriteToUDPAddrPort([]byte("ping "+p.name), at) // no route to a outsider's LAN
	}
}

// listen answers the other's pings to where they come from and notes its answer.
// Nobody else's words count: both LANs have the same range.
func (p *puncher) listen(t *testing.T, other string) {
	t.Helper()
	packet := make([]byte, 2000)
	p.conn.SetReadDeadline(time.Now().Add(round))
	for {
		n, from, err := p.conn.ReadFromUDPAddrPort(packet)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		switch word := string(packet[:n]); word {
		case "ping " + other:
			_, _ = p.conn.WriteToUDPAddrPort([]byte("pong "+p.name), from)
			if !slices.Contains(p.candidates, from) {
				p.candidates = append(p.candidates, from)
			}
		case "pong " + other:
			if !p.peer.IsValid() {
				p.peer = from
			}
		}
	}
}

// fits sends packets of the size until one is heard: some may be lost on the way.
func (p *puncher) fits(t *testing.T, to *puncher, mtu int) {
	t.Helper()
	headers := 28
	if p.peer.Addr().Is6() {
		headers = 48
	}
	word := make([]byte, mtu-headers)
	binary.BigEndian.PutUint64(word, uint64(time.Now().UnixNano()))
	packet := make([]byte, 2000)
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if _, err := p.conn.WriteToUDPAddrPort(word, p.peer); err != nil {
			t.Fatalf("%d bytes to %s: %v", mtu, p.peer, err)
		}
		to.conn.SetReadDeadline(time.Now().Add(round))
		for {
			n, _, err := to.conn.ReadFromUDPAddrPort(packet)
			if err != nil {
				break
			}
			if n == len(word) && string(packet[:n]) == string(word) {
				return
			}
		}
	}
	t.Errorf("packets of %d bytes do not pass from %s to %s", mtu, p.name, to.name)
}

// stopped sums up what filters of both places stopped.
func stopped(t *testing.T, g *lab.Grid) uint64 {
	t.Helper()
	var sum uint64
	for _, p := range g.All {
		sum += drops(t, p) + packets(t, p.UDPBlock) + packets(t, p.AllBlock)
	}
	return sum
}

// relayed: the place reaches port 443 of the hub, by each family that it has.
func relayed(t *testing.T, g *lab.Grid, p *lab.Place, proxied bool) {
	t.Helper()
	for _, way := range []struct {
		has  bool
		addr string
	}{{p.Kind.IPv4, lab.HubAddr}, {p.Kind.IPv6, lab.HubAddr6}} {
		if !way.has {
			continue
		}
		at := netip.AddrPortFrom(netip.MustParseAddr(way.addr), 443).String()
		if listener, err := g.Hub.Listen("tcp", at); err == nil {
			go greet(listener, "relay")
		} else if !strings.Contains(err.Error(), "in use") { // the other place's turn made it
			t.Fatal(err)
		}
		if proxied {
			if status := through(t, p, at); status != 200 {
				t.Errorf("the relay through the proxy: status %d", status)
			}
			continue
		}
		// TCP takes a second for a lost packet of a handshake: try anew, soon.
		err := errors.New("not tried")
		for end := time.Now().Add(patience); err != nil && time.Now().Before(end); {
			_, err = greeting(p.Host, at, 4*soon)
		}
		if err != nil {
			t.Errorf("no relay: %v", err)
		}
	}
}
