// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"
)

// Reflect answers STUN binding requests (RFC 8489) on the address: it tells
// everybody from where it saw them come. It ends with the lab.
func Reflect(h *Host, address netip.AddrPort) error {
	network := "udp4"
	if address.Addr().Is6() {
		network = "udp6"
	}
	conn, err := h.ListenUDP(network, address.String())
	if err != nil {
		return err
	}
	go func() {
		packet := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(packet)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				continue // an ICMP error of an answer
			}
			if answer := stunAnswer(packet[:n], from); answer != nil {
				_, _ = conn.WriteToUDPAddrPort(answer, from) // lost answers are asked for again
			}
		}
	}()
	return nil
}

// What of STUN the lab speaks: a request without attributes, and an answer with
// one.
const (
	stunHeader   = 20
	stunCookie   = 0x2112A442
	stunRequest  = 0x0001
	stunSuccess  = 0x0101
	stunXORAddr  = 0x0020
	stunFamilyV4 = 1
	stunFamilyV6 = 2
)

// STUNRequest is a binding request with a fresh transaction id.
func STUNRequest() []byte {
	request := make([]byte, stunHeader)
	binary.BigEndian.PutUint16(request, stunRequest)
	binary.BigEndian.PutUint32(request[4:], stunCookie)
	_, _ = rand.Read(request[8:]) // never fails
	return request
}

// STUNMapped reads from an answer to the request under which endpoint it was
// seen.
func STUNMapped(request, answer []byte) (netip.AddrPort, bool) {
	if len(answer) < stunHeader || binary.BigEndian.Uint16(answer) != stunSuccess || string(answer[4:stunHeader]) != string(request[4:stunHeader]) {
		return netip.AddrPort{}, false
	}
	for rest := answer[stunHeader:]; len(rest) >= 4; {
		kind, size := binary.BigEndian.Uint16(rest), int(binary.BigEndian.Uint16(rest[2:]))
		if len(rest) < 4+size {
			break
		}
		if value := rest[4 : 4+size]; kind == stunXORAddr && size >= 8 {
			addr, ok := netip.AddrFromSlice(masked(value[4:], answer[4:stunHeader]))
			return netip.AddrPortFrom(addr, binary.BigEndian.Uint16(value[2:])^stunCookie>>16), ok
		}
		rest = rest[min(len(rest), 4+(size+3)/4*4):]
	}
	return netip.AddrPort{}, false
}

func stunAnswer(request []byte, from netip.AddrPort) []byte {
	if len(request) < stunHeader || binary.BigEndian.Uint16(request) != stunRequest || binary.BigEndian.Uint32(request[4:]) != stunCookie {
		return nil
	}
	addr := from.Addr().Unmap()
	family := byte(stunFamilyV4)
	if addr.Is6() {
		family = stunFamilyV6
	}
	value := masked(addr.AsSlice(), request[4:stunHeader])
	answer := binary.BigEndian.AppendUint16(nil, stunSuccess)
	answer = binary.BigEndian.AppendUint16(answer, uint16(8+len(value)))
	answer = append(answer, request[4:stunHeader]...)
	answer = binary.BigEndian.AppendUint16(answer, stunXORAddr)
	answer = binary.BigEndian.AppendUint16(answer, uint16(4+len(value)))
	answer = append(answer, 0, family)
	answer = binary.BigEndian.AppendUint16(answer, from.Port()^stunCookie>>16)
	return append(answer, value...)
}

// masked is the address with cookie and transaction id over it, so that no NAT
// on the way rewrites it.
func masked(addr, mask []byte) []byte {
	out := make([]byte, len(addr))
	for i := range addr {
		out[i] = addr[i] ^ mask[i%len(mask)]
	}
	return out
}

// stunPatience bounds asking in a lab, where only a fault takes long; stunAgain
// is when it is said again.
const (
	stunPatience = 10 * time.Second
	stunAgain    = 50 * time.Millisecond
)

// STUNAsk asks a server from the socket, again and again, under which endpoint it
// sees it. It throws away whatever else comes in.
func STUNAsk(conn *net.UDPConn, server netip.AddrPort, within time.Duration) (netip.AddrPort, error) {
	packet := make([]byte, 1500)
	defer func() { _ = conn.SetReadDeadline(time.Time{}) }()
	request := STUNRequest() // one transaction: a late answer counts
	for end := time.Now().Add(within); time.Now().Before(end); {
		if _, err := conn.WriteToUDPAddrPort(request, server); err != nil {
			return netip.AddrPort{}, fmt.Errorf("asking %s: %w", server, err)
		}
		_ = conn.SetReadDeadline(time.Now().Add(stunAgain))
		for {
			n, _, err := conn.ReadFromUDPAddrPort(packet)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			if err != nil {
				return netip.AddrPort{}, fmt.Errorf("hearing %s: %w", server, err)
			}
			if mapped, ok := STUNMapped(request, packet[:n]); ok {
				return mapped, nil
			}
		}
	}
	return netip.AddrPort{}, fmt.Errorf("%s did not answer %s within %v", server, conn.LocalAddr(), within)
}
