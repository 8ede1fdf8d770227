// SPDX-License-Identifier: Apache-2.0

package netstack

import "gvisor.dev/gvisor/pkg/tcpip/header"

// Drop is why a packet is not taken.
type Drop string

// The reasons.
const (
	DropMalformed Drop = "malformed"
	DropUDP       Drop = "udp"
	DropICMP      Drop = "icmp"
	DropOther     Drop = "other" // another protocol
)

// Drops are all of them.
func Drops() []Drop { return []Drop{DropMalformed, DropUDP, DropICMP, DropOther} }

// look is what a packet is.
type look struct {
	six    bool
	why    Drop   // it is not taken
	answer []byte // to it
}

// lookAt tells TCP, which is taken, from everything else. A datagram is answered with port unreachable, so that its
// sender does not wait; an echo request is not answered, because the far end was not asked.
func lookAt(packet []byte) look {
	switch header.IPVersion(packet) {
	case header.IPv4Version:
		h := header.IPv4(packet)
		if !h.IsValid(len(packet)) {
			return look{why: DropMalformed}
		}
		return lookFor(packet, false, uint8(h.Protocol()), h.FragmentOffset() == 0)
	case header.IPv6Version:
		h := header.IPv6(packet)
		if !h.IsValid(len(packet)) {
			return look{why: DropMalformed}
		}
		if header.IPv6(packet).NextHeader() == uint8(header.IPv6FragmentExtHdrIdentifier) {
			return look{six: true}
		}
		return lookFor(packet, true, h.NextHeader(), true)
	}
	return look{why: DropMalformed}
}

func lookFor(packet []byte, six bool, protocol uint8, first bool) look {
	switch protocol {
	case uint8(header.TCPProtocolNumber):
		return look{six: six}
	case uint8(header.UDPProtocolNumber):
		l := look{six: six, why: DropUDP}
		if first {
			l.answer = portUnreachable(packet)
		}
		return l
	case uint8(header.ICMPv4ProtocolNumber), uint8(header.ICMPv6ProtocolNumber):
		return look{six: six, why: DropICMP}
	}
	return look{six: six, why: DropOther}
}
