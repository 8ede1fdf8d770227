// SPDX-License-Identifier: Apache-2.0

package relayproto

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// Type is the first byte of a frame.
type Type uint8

// The types. Others are ignored.
const (
	Welcome Type = 1 // hub: the connection is in use
	Packet  Type = 2 // both: a datagram, with its destination or its source
	Absent  Type = 3 // hub: the destination is not here
	Ping    Type = 4 // both
	Pong    Type = 5 // both
	Drain   Type = 6 // hub: it stops soon
	End     Type = 7 // hub: it ends the connection, and why
)

// Head is the length of a frame's type and length.
const Head = 4

// Next takes the first frame off b: its type and body, and what follows. Without an
// error and with a need above 0 the frame is not whole yet: that many bytes must be
// there for it, or for its head.
func Next(b []byte) (t Type, body, rest []byte, need int, err error) {
	if len(b) < Head {
		return 0, nil, b, Head, nil
	}
	n := int(b[1])<<16 | int(b[2])<<8 | int(b[3])
	if n > limit.RelayFrame {
		return 0, nil, b, 0, fmt.Errorf("a frame of %d bytes, at most %d are read", n, limit.RelayFrame)
	}
	if len(b) < Head+n {
		return 0, nil, b, Head + n, nil
	}
	return Type(b[0]), b[Head : Head+n : Head+n], b[Head+n:], 0, nil
}

func head(b []byte, t Type, n int) []byte {
	return append(b, byte(t), byte(n>>16), byte(n>>8), byte(n))
}

// named begins a frame with a name, which has 1 to 255 bytes.
func named(b []byte, t Type, name string, more int) []byte {
	b = append(head(b, t, 1+len(name)+more), byte(len(name)))
	return append(b, name...)
}

// PacketSize is how long the frame of a packet is.
func PacketSize(name string, datagram []byte) int { return Head + 1 + len(name) + len(datagram) }

// AppendPacket writes a packet to or from a node.
func AppendPacket(b []byte, name string, datagram []byte) []byte {
	return append(named(b, Packet, name, len(datagram)), datagram...)
}

// AppendAbsent writes that a node is not here.
func AppendAbsent(b []byte, name string) []byte { return named(b, Absent, name, 0) }

// ParseNamed reads the name that a packet and an absence begin with, and what follows.
func ParseNamed(body []byte) (name, rest []byte, err error) {
	if len(body) < 1 || body[0] == 0 || len(body) < 1+int(body[0]) {
		return nil, nil, fmt.Errorf("a frame of %d bytes without a whole name", len(body))
	}
	return body[1 : 1+body[0]], body[1+body[0]:], nil
}

// AppendPing writes a ping, or the pong to one of the same id.
func AppendPing(b []byte, t Type, id uint64) []byte {
	return binary.BigEndian.AppendUint64(head(b, t, 8), id)
}

// ParsePing reads the id of a ping or pong.
func ParsePing(body []byte) (id uint64, err error) {
	if len(body) < 8 {
		return 0, fmt.Errorf("a ping of %d bytes, not 8", len(body))
	}
	return binary.BigEndian.Uint64(body), nil
}

// AppendDrain writes that the hub stops soon.
func AppendDrain(b []byte) []byte { return head(b, Drain, 0) }

// Greeting is the body of a welcome.
type Greeting struct {
	Observed netip.AddrPort // where the hub sees the node; not valid if it does not know
	Largest  int            // bytes of a datagram
	Rate     uint64         // bytes a second that the node may send; 0: no bound
}

const greetingLength = 16 + 2 + 2 + 8

// AppendWelcome writes a welcome.
func AppendWelcome(b []byte, g Greeting) []byte {
	at := g.Observed.Addr()
	if !at.IsValid() {
		at = netip.IPv6Unspecified()
	}
	raw := at.As16()
	b = append(head(b, Welcome, greetingLength), raw[:]...)
	b = binary.BigEndian.AppendUint16(b, g.Observed.Port())
	b = binary.BigEndian.AppendUint16(b, uint16(min(g.Largest, 0xffff)))
	return binary.BigEndian.AppendUint64(b, g.Rate)
}

// ParseWelcome reads a welcome.
func ParseWelcome(body []byte) (g Greeting, err error) {
	if len(body) < greetingLength {
		return g, fmt.Errorf("a welcome of %d bytes, not %d", len(body), greetingLength)
	}
	if at := netip.AddrFrom16([16]byte(body[:16])).Unmap(); !at.IsUnspecified() {
		g.Observed = netip.AddrPortFrom(at, binary.BigEndian.Uint16(body[16:]))
	}
	g.Largest, g.Rate = int(binary.BigEndian.Uint16(body[18:])), binary.BigEndian.Uint64(body[20:])
	if g.Largest == 0 {
		return Greeting{}, fmt.Errorf("a welcome that takes no datagram")
	}
	return g, nil
}

// Reason is the body of an end: what a fault says. Longer texts are cut.
type Reason struct{ Code, What, Why, Next string }

// AppendEnd writes an end: four texts, each with a length of 2 bytes.
func AppendEnd(b []byte, r Reason) []byte {
	var body []byte
	for _, s := range []string{r.Code, r.What, r.Why, r.Next} {
		s = s[:min(len(s), limit.FaultText)]
		body = append(binary.BigEndian.AppendUint16(body, uint16(len(s))), s...)
	}
	return append(head(b, End, len(body)), body...)
}

// ParseEnd reads an end. Its texts are as the peer wrote them.
func ParseEnd(body []byte) (r Reason, err error) {
	for _, into := range []*string{&r.Code, &r.What, &r.Why, &r.Next} {
		if len(body) < 2 || len(body) < 2+int(binary.BigEndian.Uint16(body)) {
			return Reason{}, fmt.Errorf("an end whose texts are cut short")
		}
		n := int(binary.BigEndian.Uint16(body))
		*into, body = string(body[2:2+n]), body[2+n:]
	}
	return r, nil
}
