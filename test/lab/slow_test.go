// SPDX-License-Identifier: Apache-2.0

//go:build lab

package lab_test

import (
	"encoding/binary"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/test/lab"
)

// TestDelay: what goes over a slow link takes at least its time, keeps its order,
// meets the same NAT, and takes another time when told so. (That it takes not much
// more depends on the machine, and nobody promises it.)
func TestDelay(t *testing.T) {
	t.Parallel()
	const each = 30 * time.Millisecond
	slow := kind(t, "dual-stack")
	slow.Delay = each
	g := gridOf(t, lab.Pair{A: slow, B: kind(t, "open")})
	for _, family := range []struct {
		network string
		servers []netip.AddrPort
		want    lab.UDP
	}{{"udp4", g.STUN4, slow.V4}, {"udp6", g.STUN6, slow.V6}} {
		conn := udp(t, g.A.Host, family.network, ":51820")
		mapped(t, conn, family.servers[0]) // neighbours are known then
		if took := roundTrip(t, conn, family.servers[0]); took < 2*each {
			t.Errorf("%s: there and back took %v over a link of %v each way", family.network, took, each)
		}
		if got := mapping(t, conn, family.servers); got != family.want.Mapping {
			t.Errorf("%s: %s mapping", family.network, got)
		}
	}
	if got := filtering(t, g, g.A, "udp4", g.STUN4); got != slow.V4.Filtering {
		t.Errorf("%s filtering", got)
	}
	conn, hub := udp(t, g.A.Host, "udp4", ":40003"), udp(t, g.Hub, "udp4", lab.HubAddr+":9998")
	const packets = 100
	for i := range packets {
		if i == packets/2 {
			g.A.Delay.Set(0) // these must not overtake
		}
		say(t, conn, string(binary.BigEndian.AppendUint32(nil, uint32(i))), netip.MustParseAddrPort(lab.HubAddr+":9998"))
	}
	packet := make([]byte, 100)
	for i := range uint32(packets) {
		hub.SetReadDeadline(time.Now().Add(patience))
		if _, err := hub.Read(packet); err != nil || binary.BigEndian.Uint32(packet) != i {
			t.Fatalf("packet %d: %d, %v", i, binary.BigEndian.Uint32(packet), err)
		}
	}
	g.A.Delay.Set(2 * each)
	if took := roundTrip(t, conn, g.STUN4[0]); took < 4*each {
		t.Errorf("after the change there and back took %v", took)
	}
}

// roundTrip is how long an answer takes of which every request is waited for.
func roundTrip(t *testing.T, conn *net.UDPConn, server netip.AddrPort) time.Duration {
	t.Helper()
	request, packet := lab.STUNRequest(), make([]byte, 1500)
	began := time.Now()
	say(t, conn, string(request), server)
	conn.SetReadDeadline(began.Add(patience))
	for {
		n, _, err := conn.ReadFromUDPAddrPort(packet)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := lab.STUNMapped(request, packet[:n]); ok {
			return time.Since(began)
		}
	}
}
