// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"net"
	"net/netip"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/run"
)

// The numbers of ICMP and ICMPv6 for icmp.ParseMessage.
const (
	icmp4 = 1
	icmp6 = 58
)

// echo asks an address by ICMP echo (RFC 792, RFC 4443), through the kernel and the
// tunnel as everybody's packets go, and says how long the answer took.
func echo(ctx context.Context, from, to netip.Addr) (time.Duration, error) {
	family, number, kind := "6", icmp6, icmp.Type(ipv6.ICMPTypeEchoRequest)
	if to.Is4() {
		family, number, kind = "4", icmp4, ipv4.ICMPTypeEcho
	}
	conn, raw, err := openEcho(family, from)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	stop := run.OnDone(ctx, func() { conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	nonce := make([]byte, 32) // whoever answers has seen the question
	if _, err := rand.Read(nonce); err != nil {
		return 0, fault.New(fault.CodeInternal, "no random numbers").Because(err)
	}
	ask := icmp.Message{Type: kind, Body: &icmp.Echo{ID: int(binary.BigEndian.Uint16(nonce)), Seq: 1, Data: nonce}}
	packet, err := ask.Marshal(nil) // the kernel fills in the checksum of ICMPv6
	if err != nil {
		return 0, fault.New(fault.CodeInternal, "the echo is not encoded").Because(err)
	}
	var at net.Addr = &net.UDPAddr{IP: to.AsSlice()}
	if raw {
		at = &net.IPAddr{IP: to.AsSlice()}
	}
	began := time.Now()
	if _, err := conn.WriteTo(packet, at); err != nil {
		return 0, fault.New(fault.CodeDialUnreachable, "the echo is not sent").Because(err)
	}
	buffer := make([]byte, 1500)
	for {
		n, source, err := conn.ReadFrom(buffer)
		if err != nil {
			return 0, fault.New(fault.CodeDialTimeout, "no answer comes through the tunnel").Because(ctx.Err())
		}
		answer, err := icmp.ParseMessage(number, buffer[:n])
		if err != nil || sourceOf(source) != to {
			continue
		}
		if e, ok := answer.Body.(*icmp.Echo); ok && answer.Type != kind && string(e.Data) == string(nonce) {
			return time.Since(began), nil
		}
	}
}

// openEcho opens a raw socket, or the kind that the kernel gives to users without
// rights (icmp(7), net.ipv4.ping_group_range).
func openEcho(family string, from netip.Addr) (conn *icmp.PacketConn, raw bool, err error) {
	protocol := map[string]string{"4": "icmp", "6": "ipv6-icmp"}[family]
	if conn, err = icmp.ListenPacket("ip"+family+":"+protocol, from.String()); err == nil {
		return conn, true, nil
	}
	if conn, second := icmp.ListenPacket("udp"+family, from.String()); second == nil {
		return conn, false, nil
	}
	return nil, false, fault.New(fault.CodeUnsupported, "an echo cannot be sent").Because(err).
		Hint("give the mesh CAP_NET_RAW, or let its group ping: sysctl net.ipv4.ping_group_range")
}

func sourceOf(a net.Addr) netip.Addr {
	switch a := a.(type) {
	case *net.IPAddr:
		out, _ := netip.AddrFromSlice(a.IP)
		return out.Unmap()
	case *net.UDPAddr:
		return a.AddrPort().Addr().Unmap().WithZone("")
	}
	return netip.Addr{}
}
