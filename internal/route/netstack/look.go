// SPDX-License-Identifier: Apache-2.0

package netstack

import (
	"encoding/binary"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// Drop is why a packet is not taken.
type Drop string

// The reasons.
const (
	DropMalformed Drop = "malformed"
	DropFragment  Drop = "fragment" // of a datagram: nobody here is told to make any, the link's MTU is that of UDP
	DropFull      Drop = "full"     // there was no room for a datagram
	DropLarge     Drop = "large"    // a datagram does not fit into the link
	DropICMP      Drop = "icmp"     // no echo request
	DropOther     Drop = "other"    // another protocol
)

// Drops are all of them.
func Drops() []Drop {
	return []Drop{DropMalformed, DropFragment, DropFull, DropLarge, DropICMP, DropOther}
}

// Network is how a caller speaks to a target.
type Network string

// The networks, as a hub has them.
const (
	TCP  Network = wire.NetworkTCP
	UDP  Network = wire.NetworkUDP
	Echo Network = wire.NetworkEcho
)

// look is what a packet is.
type look struct {
	six     bool
	why     Drop // it is not taken
	flow    flowKey
	payload []byte // of a datagram; of an echo request, the number and the data
}

// lookAt tells TCP from datagrams, and these from everything else.
func lookAt(packet []byte) look {
	switch header.IPVersion(packet) {
	case header.IPv4Version:
		h := header.IPv4(packet)
		if !h.IsValid(len(packet)) {
			return look{why: DropMalformed}
		}
		if h.TransportProtocol() == header.TCPProtocolNumber {
			return look{}
		}
		if h.More() || h.FragmentOffset() != 0 {
			return look{why: DropFragment}
		}
		packet = packet[:h.TotalLength()]
		return lookFor(h.TransportProtocol(), packet[h.HeaderLength():], h.SourceAddress(), h.DestinationAddress())
	case header.IPv6Version:
		h := header.IPv6(packet)
		if !h.IsValid(len(packet)) {
			return look{why: DropMalformed}
		}
		end := min(len(packet), header.IPv6MinimumSize+int(h.PayloadLength()))
		next := tcpip.TransportProtocolNumber(h.NextHeader()) // extension headers but that of a fragment are not taken
		l := lookFor(next, packet[header.IPv6MinimumSize:end], h.SourceAddress(), h.DestinationAddress())
		l.six = true
		return l
	}
	return look{why: DropMalformed}
}

// fragment is the extension header of a fragment (RFC 8200).
const fragment = tcpip.TransportProtocolNumber(header.IPv6FragmentExtHdrIdentifier)

// lookFor looks at what is behind an IP header.
func lookFor(protocol tcpip.TransportProtocolNumber, body []byte, from, to tcpip.Address) look {
	ask := byte(header.ICMPv4Echo)
	switch protocol {
	case header.TCPProtocolNumber, fragment: // the stack puts fragments together
		return look{}
	case header.UDPProtocolNumber:
		if len(body) < header.UDPMinimumSize {
			return look{why: DropMalformed}
		}
		h := header.UDP(body)
		n := int(h.Length())
		if n < header.UDPMinimumSize || n > len(body) || h.SourcePort() == 0 || h.DestinationPort() == 0 {
			return look{why: DropMalformed}
		}
		return look{flow: flowKey{UDP, addrPort(from, h.SourcePort()), addrPort(to, h.DestinationPort())},
			payload: body[header.UDPMinimumSize:n]}
	case header.ICMPv6ProtocolNumber:
		ask = byte(header.ICMPv6EchoRequest)
	case header.ICMPv4ProtocolNumber:
	default:
		return look{why: DropOther}
	}
	const head = 8 // type, code, checksum, identifier and number
	if len(body) < head || body[0] != ask || body[1] != 0 {
		return look{why: DropICMP}
	}
	id := binary.BigEndian.Uint16(body[4:])
	return look{flow: flowKey{Echo, addrPort(from, id), addrPort(to, wire.EchoPort)}, payload: body[head-sequence:]}
}
