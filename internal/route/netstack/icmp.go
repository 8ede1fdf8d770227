// SPDX-License-Identifier: Apache-2.0

package netstack

import (
	"slices"

	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"

	"github.com/tombolo-io/tombolo/internal/route/answer"
)

// headOf is what a message about a packet quotes: its IP and TCP headers.
func headOf(pkt *stack.PacketBuffer) []byte {
	head := slices.Concat(pkt.NetworkHeader().Slice(), pkt.TransportHeader().Slice())
	return head[:min(len(head), quoted)]
}

// codes are those of a destination that is unreachable (RFC 792 and 1812, RFC 4443).
type codes struct {
	four header.ICMPv4Code
	six  header.ICMPv6Code
}

// unreachable is the ICMP message that answers a packet, nil for none.
func unreachable(head []byte, a answer.Answer) []byte {
	switch a {
	case answer.NoNetwork:
		return message(head, codes{header.ICMPv4NetUnreachable, header.ICMPv6NetworkUnreachable})
	case answer.NoHost:
		return message(head, codes{header.ICMPv4HostUnreachable, header.ICMPv6AddressUnreachable})
	case answer.Prohibited:
		return message(head, codes{header.ICMPv4AdminProhibited, header.ICMPv6Prohibited})
	}
	return nil
}

func portUnreachable(packet []byte) []byte {
	return message(packet[:min(len(packet), quoted)], codes{header.ICMPv4PortUnreachable, header.ICMPv6PortUnreachable})
}

// message is a message that comes from where the packet was sent to: the kernel takes none that comes from an address
// of its own.
func message(head []byte, c codes) []byte {
	if header.IPVersion(head) == header.IPv4Version {
		return message4(head, c.four)
	}
	return message6(head, c.six)
}

func message4(head []byte, code header.ICMPv4Code) []byte {
	if len(head) < header.IPv4MinimumSize {
		return nil
	}
	about := header.IPv4(head)
	const size = header.IPv4MinimumSize + header.ICMPv4MinimumSize
	out := append(make([]byte, size, size+len(head)), head...)
	ip := header.IPv4(out)
	ip.Encode(&header.IPv4Fields{
		TotalLength: uint16(len(out)), TTL: 64, Protocol: uint8(header.ICMPv4ProtocolNumber),
		SrcAddr: about.DestinationAddress(), DstAddr: about.SourceAddress(),
	})
	ip.SetChecksum(^ip.CalculateChecksum())
	icmp := header.ICMPv4(out[header.IPv4MinimumSize:])
	icmp.SetType(header.ICMPv4DstUnreachable)
	icmp.SetCode(code)
	icmp.SetChecksum(^checksum.Checksum(icmp, 0))
	return out
}

func message6(head []byte, code header.ICMPv6Code) []byte {
	if len(head) < header.IPv6MinimumSize {
		return nil
	}
	about := header.IPv6(head)
	const size = header.IPv6MinimumSize + header.ICMPv6DstUnreachableMinimumSize
	out := append(make([]byte, size, size+len(head)), head...)
	from, to := about.DestinationAddress(), about.SourceAddress()
	header.IPv6(out).Encode(&header.IPv6Fields{
		PayloadLength: uint16(len(out) - header.IPv6MinimumSize), TransportProtocol: header.ICMPv6ProtocolNumber,
		HopLimit: 64, SrcAddr: from, DstAddr: to,
	})
	icmp := header.ICMPv6(out[header.IPv6MinimumSize:])
	icmp.SetType(header.ICMPv6DstUnreachable)
	icmp.SetCode(code)
	icmp.SetChecksum(header.ICMPv6Checksum(header.ICMPv6ChecksumParams{Header: icmp, Src: from, Dst: to}))
	return out
}
